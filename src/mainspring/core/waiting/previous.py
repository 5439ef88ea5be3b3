"""`previous`: the result of the call before, in the arguments of a chain.

It has a module of its own, because no call is searched for placeholders until this process has made one.
"""

from __future__ import annotations

from typing import Any

from mainspring.core.waiting.placeholders import Placeholder

__all__ = ["previous"]

previous: Any = Placeholder("")
"""The placeholder for the result of the call before, in the arguments of a later call of `app.chain`."""
