"""Programs in a process of their own: written to a file, run, and looked at when they have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

LIMIT = 90.0


class Program:
    """A program's source, and how it ends."""

    def __init__(self, folder: Path, source: str) -> None:
        self._path = folder / "program.py"
        self._path.write_text(textwrap.dedent(source))

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            # Unclosed loops and coroutines that were never awaited are errors of ours.
            [sys.executable, "-W", "error", "-X", "faulthandler", str(self._path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )

    def run(self, **environment: str) -> str:
        """Return what the program printed, having ended well and said nothing of errors."""
        process = self.start(**environment)
        return end(process)


def end(process: subprocess.Popen[str]) -> str:
    """Wait for a program that should end well, and return what it printed."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the program did not end:\n{out}\n{err}") from None
    assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}\n{err}"
    return out
