"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import os
import select
import sys
from typing import Final, Self

try:
    import termios
    import tty
except ImportError:  # Windows, where no keys are read
    termios = None  # type: ignore[assignment]

__all__ = ["Keyboard", "has_terminal"]

_NAMES: Final = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"\t": "tab", b"\x1b[Z": "back",
    b"\x03": "q", b"\x1b": "q", b"\r": "enter", b"\n": "enter",
}  # fmt: skip


def has_terminal() -> bool:
    """Return True if there is a terminal to draw on and to read keys from."""
    return termios is not None and sys.stdin.isatty() and sys.stdout.isatty()


class Keyboard:
    """A reader of single keys; it restores the terminal's mode at the end."""

    def __enter__(self) -> Self:
        self._fd = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(self, *exc_info: object) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def read(self, timeout: float) -> str | None:
        """Return the next key, or None if none is pressed in time; a closed terminal reads as `q`."""
        ready, _, _ = select.select([self._fd], [], [], timeout)
        if not ready:
            return None
        pressed = os.read(self._fd, 1)
        while pressed.startswith(b"\x1b") and len(pressed) < 3 and select.select([self._fd], [], [], 0.02)[0]:
            pressed += os.read(self._fd, 1)
        return _NAMES.get(pressed, pressed.decode(errors="replace")) if pressed else "q"
