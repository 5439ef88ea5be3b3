"""Do what a page shows in its terminals, and compare what is printed with what the page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Final

from tests.docs.pages import Block, blocks_of

PREPARED: Final = ("python3 -m venv", ". .venv", "pip install", "cd ", "git clone")
"""Commands that set the reader up; the tests are set up already."""
FIRST: Final = "first terminal"
PATIENCE_SECONDS: Final = 90.0
READING_SECONDS: Final = 1.0
"""The reader looks at what an interrupted program has printed for this long; a fire of each second is due by then."""
_ALIKE: Final = (
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"\b\w[\w.-]*:\d+:[0-9a-f]{8}\b", "NODE"),
    (r"@\d+@\d{13,}", "@FIRE"),
    (r"\b\d{4}-\d\d-\d\d\b", "DAY"),
    (r"\b\d\d:\d\d(:\d\d)?([.,]\d+)?\b", "TIME"),
    (r"(?<=  )now(?=  )", "0 s ago"),  # a cell of a table: a quick machine is back within half a second
    (r"\bunder 1 ms\b", "TOOK"),
    (r"\b\d+(\.\d+)? ?(ms|s|min|h)\b( \d+ (s|min)\b)?", "TOOK"),
    (r"below /[^;]+;", "below FOLDER;"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "WEEKDAY"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r" +", " "),
)
"""What differs from one execution to the next, and what stands for it in a comparison."""


def alike(line: str) -> str:
    """Return a line without what differs each time: ids, times, durations, widths of columns."""
    for pattern, name in _ALIKE:
        line = re.sub(pattern, name, line)
    return line.strip()


def missing_line(shown: list[str], printed: list[str]) -> str | None:
    """Return the first line that a page shows and the program did not print, in this order; `...` stands for any."""
    at, free = 0, False
    for line in map(alike, shown):
        if line == "...":
            free = True
            continue
        places = [n for n, each in enumerate(printed[at:], at) if alike(each) == line]
        if not places or (places[0] != at and not free):
            return line
        at, free = places[0] + 1, False
    return None if free or at == len(printed) else "(nothing more)"


class Program:
    """A command that goes on in a terminal until Ctrl-C."""

    def __init__(self, command: str, folder: Path, environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.printed: list[str] = []
        self._news = threading.Condition()
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                with self._news:
                    self.printed.append(line.rstrip("\n"))
                    self._news.notify_all()

    def wait_for(self, shown: list[str]) -> None:
        """Wait until the program has printed these lines, whatever comes between them."""
        spread = [part for line in shown for part in ("...", line)] + ["..."]
        with self._news:
            if not self._news.wait_for(lambda: missing_line(spread, self.printed) is None, PATIENCE_SECONDS):
                raise AssertionError(f"{missing_line(spread, self.printed)!r} is not in:\n" + "\n".join(self.printed))

    def interrupt(self) -> int:
        """Press Ctrl-C, and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def kill(self) -> None:
        """End the program and its children, after a failure."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.interrupt()


class Transcript:
    """The terminals of one page, in a folder of their own.

    A console block holds commands and what they print. One that ends with `^C` shows a program that the reader
    interrupts; one titled `first terminal` a program that goes on until a later block of that title shows `^C`. A block
    with any other title is only shown.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "DJANGO_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), keep.get("PATH", os.defpath)])
        self.environ = keep | {"PATH": path, "TZ": "UTC", "COLUMNS": "160", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
        self.environ["PYTHONUNBUFFERED"] = "1"  # as on a terminal
        self.environ |= variables
        self.first: Program | None = None

    def play(self, page: str) -> int:
        """Write the files and execute the commands of a page; return how many commands there were."""
        commands = 0
        try:
            for block in blocks_of(page):
                try:
                    commands += self._play(block)
                except AssertionError as error:
                    raise AssertionError(f"{page}, line {block.line}: {error}") from None
        finally:
            if self.first is not None:
                self.first.kill()
        return commands

    def _play(self, block: Block) -> int:
        if block.is_file:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        if block.language != "console" or block.title not in ("", FIRST):
            return 0
        parts = re.findall(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", block.text, re.M)
        if not parts:
            assert self.first is not None, "nothing runs in the first terminal"
            return self._go_on(block.text.splitlines())
        for command, output in parts:
            self._execute(re.sub(r"  # .*", "", command), output.splitlines(), block.title == FIRST)
        return len(parts)

    def _execute(self, command: str, shown: list[str], goes_on: bool) -> None:
        if command.startswith(PREPARED):
            return
        if goes_on or "^C" in shown:
            assert self.first is None, "a program runs in the first terminal already"
            self.first = Program(command, self.folder, self.environ)
            self._go_on(shown)
            return
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        printed = done.stdout.splitlines()
        missing = missing_line(shown, printed)
        assert missing is None, f"`{command}` should print {missing!r}, but printed:\n{done.stdout}"

    def _go_on(self, shown: list[str]) -> int:
        assert self.first is not None
        lines = [line for line in shown if line not in ("", "...")]
        before, interrupted, after = (
            (lines[: lines.index("^C")], True, lines[lines.index("^C") + 1 :]) if "^C" in lines else (lines, False, [])
        )
        self.first.wait_for(before)
        if interrupted:
            assert self.first.interrupt() == 0, "\n".join(self.first.printed)
            self.first.wait_for(before + after)
            self.first = None
            time.sleep(READING_SECONDS)
        return 1
