"""`mainspring demo`: a small shop at work."""

from mainspring.cli.demo.command import demo

__all__ = ["demo"]
