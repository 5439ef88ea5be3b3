"""A process that a task forks must end when it returns from the task's code.

Only the forking thread exists in such a process. If that thread returned to our loops, it would execute claimed runs a
second time, report runs of its parent, and write to its parent's connections.
"""

from __future__ import annotations

import os
import sys
import traceback

__all__ = ["leave_if_forked"]


def leave_if_forked(home: int, error: BaseException | None = None) -> None:
    """Return in the process `home`. End any other process the way Python ends a program that returns or raises."""
    if os.getpid() == home:
        return
    code = 1
    try:
        code = _exit_code(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Do not use sys.exit: this process must neither unwind our frames nor run the parent's exit handlers.
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
