"""The front door: `Mainspring` and what it is made of."""

from mainspring.app.app import Mainspring

__all__ = ["Mainspring"]
