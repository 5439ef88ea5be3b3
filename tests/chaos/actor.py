"""A program that takes part in a chaos run."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.proxy import Proxy

ROOT: Final = Path(__file__).parents[2]
DIE_WITH_US: Final = [setpriv, "--pdeathsig=KILL"] if (setpriv := shutil.which("setpriv")) else []


class Actor:
    """A program that is started again whenever it is gone: a cluster, a plain node, the producer."""

    def __init__(self, name: str, words: list[str], env: dict[str, str], folder: Path) -> None:
        self.name = name
        self._words, self.env, self._folder = words, dict(env), folder
        self.process: subprocess.Popen[bytes] | None = None
        self.proxy: Proxy | None = None
        self.start_at = 0.0
        self.done = False

    def look(self) -> None:
        """Start it if it is not there and should be."""
        if self.process is not None and self.process.poll() is not None:
            self.done = self.process.returncode == 0
            self.process = None
        if self.process is None and not self.done and time.monotonic() >= self.start_at:
            with (self._folder / f"{self.name}.log").open("ab") as file:
                self.process = subprocess.Popen(
                    [*DIE_WITH_US, sys.executable, *self._words], cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL,
                    stdout=file, stderr=file, start_new_session=True,
                )  # fmt: skip

    def pids(self) -> list[int]:
        """Return the processes of which it consists."""
        return [self.process.pid, *self.children()] if self.process is not None else []

    def children(self) -> list[int]:
        """Return the worker processes of a cluster."""
        if self.process is None or self.process.poll() is not None:
            return []
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(word) for word in task.read_text().split()]
        return [pid for pid in sorted(found) if b"spawn_main" in _command(pid)]


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
