"""The front door: the `Mainspring` class and its parts."""

from mainspring.app.app import Mainspring

__all__ = ["Mainspring"]
