"""A store whose writes can be interrupted, for the tests of moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mainspring.jobstores.base import JobStore

__all__ = ["Fragile", "Killed"]

WRITES: Final = ("add_runs", "settle", "delete_runs", "add_job", "update_job", "remove_jobs", "set_gate")


class Killed(BaseException):
    """Stands for a kill."""


class Fragile:
    """A store in whose n-th write, of two stores together, the process is killed: before it is done, or after."""

    def __init__(self, store: JobStore, fuse: list[int], done: bool) -> None:
        self._store, self._fuse, self._done = store, fuse, done

    def __getattr__(self, name: str) -> Any:
        write = getattr(self._store, name)
        return (lambda *args, **kwargs: self._burn(write, *args, **kwargs)) if name in WRITES else write

    def _burn(self, write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._fuse[0] -= 1
        if self._fuse[0] == 0 and not self._done:
            raise Killed
        answer = write(*args, **kwargs)
        if self._fuse[0] == 0:
            raise Killed
        return answer
