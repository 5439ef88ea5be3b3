"""`mainspring dev`: a worker and scheduler in one process, which restarts when a file changes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from mainspring.cli.common.failing import CommandFailed
from mainspring.cli.common.target import load_app, opened, target_of
from mainspring.cli.dashboard import beside
from mainspring.core.insight.wording import listed, several

__all__ = ["Files", "dev"]

POLL_SECONDS: Final = 0.4
LOOK_SECONDS: Final = 0.05
"""The pause between two checks of an ending process, in seconds."""
SETTLE_SECONDS: Final = 0.2
"""Wait until nothing has changed for this long: an editor may write several files, or one in several steps."""
STOP_SECONDS: Final = 10.0
"""The seconds that started runs get to end before the process is killed."""
SILENT_STOP_SECONDS: Final = 0.8
"""Report that a stop waits for started runs if it takes longer than this."""
MOST_FILES: Final = 5000
_OTHERS: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"})


@click.command()
@click.argument("file", metavar="FILE|MODULE:APP", default=None, required=False)
@click.option("-a", "--app", "where", default=None, metavar="MODULE:APP", help="The same, as the other verbs take it.")
@click.option("-t", "--threads", type=click.IntRange(1), default=8, show_default=True, help="Threads for tasks.")
@click.option("--no-reload", is_flag=True, help="Do not start again when a file changes.")
@click.option("--dashboard/--no-dashboard", default=True, help="Serve the dashboard, too, if it is installed.")
def dev(file: str | None, where: str | None, threads: int, no_reload: bool, dashboard: bool) -> None:
    """Execute an app's runs and fire its schedules in one process, and start again when a file changes.

    The log says what happens to each run. Changes are looked for in the .py files of the app's folder and below.
    Ctrl-C lets started runs end. In production use `mainspring worker`.

    \b
    Examples:
      mainspring dev app.py
      mainspring dev shop.jobs:app --threads 4
    """
    target = target_of(file or where)
    if no_reload:
        return _work(target, threads, dashboard)
    command = [sys.executable, "-m", "mainspring", "dev", target, "--no-reload", "--threads", str(threads)]
    command += [] if dashboard else ["--no-dashboard"]
    sys.exit(Reloader(command, Files(_folder(target))).run())


def _work(target: str, threads: int, dashboard: bool) -> None:
    """Schedule and work in this process until a signal arrives."""
    import logging

    from mainspring.cluster.log_output import TextFormatter, has_colours

    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter(coloured=has_colours(), brief=True))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    if "://" not in target:
        load_app(target)  # this verb shows the linter's findings about schedules, which other verbs hide
    with opened(target, must_exist=False, needs_key=False) as app:
        server, line = beside(app) if dashboard else (None, "")
        if line:
            _say(line)
        try:
            app.run(threads=threads)
        finally:
            if server is not None:
                server.stop()


def _folder(target: str) -> Path:
    file = Path(target.partition(":")[0])
    if file.suffix != ".py":
        return Path.cwd()
    if not file.is_file():
        raise CommandFailed(f"there is no file {str(file)!r}", f"mainspring init {shlex.quote(str(file))}")
    return file.resolve().parent


class Files:
    """The Python files below a folder, with their modification times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = self._look()

    def __len__(self) -> int:
        return len(self._seen)

    def changed(self) -> list[str]:
        """Return the files that were written, added or removed since the last call."""
        before, self._seen = self._seen, self._look()
        paths = before.keys() | self._seen.keys()
        return sorted(path for path in paths if before.get(path) != self._seen.get(path))

    def _look(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for folder, folders, names in os.walk(self.folder):
            folders[:] = [
                name
                for name in folders
                if name not in _OTHERS
                and not name.startswith(".")
                and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            ]
            for name in names:
                if name.endswith(".py") and len(found) < MOST_FILES:
                    path = os.path.join(folder, name)
                    with suppress(OSError):  # it was removed in the meantime
                        stat = os.stat(path)
                        found[os.path.relpath(path, self.folder)] = stat.st_mtime_ns, stat.st_size
        return found


class Reloader:
    """A loop that restarts a command after each file change until it is stopped."""

    def __init__(self, command: list[str], files: Files) -> None:
        self._command, self._files = command, files
        self._signals = 0

    @property
    def _stopping(self) -> bool:
        return self._signals > 0

    def run(self) -> int:
        """Run until Ctrl-C, SIGTERM, or the end of the command; return the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        _say(f"watching {several(len(self._files), 'file')} below {self._files.folder}; Ctrl-C ends it")
        while True:
            process = subprocess.Popen(self._command)
            changed = self._wait(process)
            code = self._end(process)
            if self._stopping or (not changed and code == 0):
                _say("stopped")
                return 0
            if not changed:
                _say(f"it ended with code {code}; waiting for a change")
                changed = self._wait(None)
                if self._stopping:
                    return code
            _say(f"{listed(changed, 3)} changed; starting again")

    def _wait(self, process: subprocess.Popen[bytes] | None) -> list[str]:
        """Wait for a change, the end of the process, or a signal; return the changed files."""
        while not self._stopping and (process is None or process.poll() is None):
            time.sleep(POLL_SECONDS)
            changed = self._files.changed()
            while changed:
                time.sleep(SETTLE_SECONDS)
                more = self._files.changed()
                if not more:
                    return changed
                changed = sorted({*changed, *more})
        return []

    def _stop(self, number: int, frame: object) -> None:
        self._signals += 1

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """End a process; give its started runs time to end, at most until a second signal."""
        if process.poll() is None:
            with suppress(OSError):
                process.terminate()
            if not self._ends_within(process, SILENT_STOP_SECONDS):
                _say(f"waiting up to {STOP_SECONDS:g} s for started runs to end; a second Ctrl-C kills them")
            if not self._ends_within(process, STOP_SECONDS):
                _say("killing the started runs; they are executed again later")
                process.kill()
        return process.wait()

    def _ends_within(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Return True if a process ends within this time and before a second signal."""
        deadline = time.monotonic() + seconds
        while process.poll() is None:
            if self._signals > 1 or time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} dev     {text}", err=True)
