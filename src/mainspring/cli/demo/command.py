"""`mainspring demo`: run the shop in one process, with its log and a summary."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring import events
from mainspring.cli.common.output import Column, echo, table
from mainspring.cli.dashboard import beside

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["demo"]

_COUNTED: Final = {
    events.EVENT_RUN_SUCCEEDED: "succeeded",
    events.EVENT_RUN_FAILED: "failed",
    events.EVENT_RUN_RETRIED: "retried",
    events.EVENT_JOB_MISSED: "missed",
    events.EVENT_JOB_MAX_INSTANCES: "skipped",
    events.EVENT_JOB_BROKEN: "broken",
    events.EVENT_RUN_BROKEN: "broken",
}
MOST_PATIENCE_SECONDS: Final = 60.0
_NEXT: Final = (
    ("init", "writes an app.py of your own"),
    ("dev app.py", "runs it, and starts again when you change it"),
    ('cron "*/5 9-17 * * mon-fri"', "says when that fires"),
)


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0.1), default=None, help="End after this many seconds.")
@click.option("--dashboard/--no-dashboard", default=True, help="Serve the dashboard, too, if it is installed.")
def demo(seconds: float | None, dashboard: bool) -> None:
    """Watch a small shop at work, in one process on SQLite; Ctrl-C ends it.

    There are schedules of each kind, runs that succeed, fail and are retried, progress, a chain, a group, a job that is
    too slow for its schedule, one that is too late, and a record that cannot be read. The lines are those of the log.

    \b
    Example:
      mainspring demo --seconds 6
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mainspring-demo-") as folder, _logged():
        url, key = f"sqlite:///{Path(folder).as_posix()}/shop.db", secrets.token_hex(16)
        Path(folder, "shop.db.key").write_text(key, encoding="ascii")
        os.chmod(Path(folder, "shop.db.key"), 0o600)
        shop = _shop_in(Path(folder))
        with shop.make_shop(url, key) as app:
            watch, server = Watch(app, started), None
            try:
                echo("A small shop at work in this process; Ctrl-C ends it. To look at it from another terminal:")
                echo(f"  {_program()} runs list --app {url} --name shop")
                sys.stdout.flush()
                shop.add_strange_job(url)
                now = datetime.now(app.timezone).replace(microsecond=0)
                shop.add_schedules(app, now)
                begun = shop.begin(app)
                app.start(work=True)
                server, line = beside(app) if dashboard else (None, "")
                echo(line)
                shop.add_late_job(app, now)
                _wait(None if seconds is None else time.monotonic() + seconds)
                app.wait(begun, MOST_PATIENCE_SECONDS)  # so that a slow machine shows everything, too
            except KeyboardInterrupt:
                pass
            finally:
                if server is not None:
                    server.stop()
                app.stop()
            watch.show(time.monotonic() - started)
    echo("\nTry next:")
    for words, meaning in _NEXT:
        command = f"{_program()} {words}"
        echo(f"  {command:<40} # {meaning}")


def _program() -> str:
    """Return the program to type in a shell: its path if its environment is not active."""
    beside, found = Path(sys.executable).with_name("mainspring"), shutil.which("mainspring")
    in_environment = sys.prefix != sys.base_prefix and "VIRTUAL_ENV" not in os.environ
    # A launcher may have added this environment to the PATH of this process only.
    if not beside.is_file() or (found and not (in_environment and Path(found) == beside)):
        return "mainspring"
    return shlex.quote(str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside))


def _shop_in(folder: Path) -> Any:
    """Copy the shop into a folder and import it from there, so that tracebacks treat it as a user's program."""
    file = folder / "shop.py"
    file.write_text(Path(__file__).with_name("shop.py").read_text(encoding="utf-8"), encoding="utf-8")
    spec = spec_from_file_location("shop", file)
    assert spec is not None
    assert spec.loader is not None
    shop = module_from_spec(spec)
    spec.loader.exec_module(shop)
    return shop


def _wait(end: float | None) -> None:
    while end is None or time.monotonic() < end:
        time.sleep(0.1 if end is None else max(0.0, min(0.1, end - time.monotonic())))


@contextmanager
def _logged() -> Iterator[None]:
    """Write the log to stdout for the duration of the block: the log is the show."""
    from mainspring.cluster.log_output import TextFormatter

    handler = logging.StreamHandler(sys.stdout)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(TextFormatter(coloured=coloured, brief=True))
    loggers = [logging.getLogger("mainspring"), logging.getLogger("shop")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


class Watch:
    """A listener that counts the app's events for the summary."""

    def __init__(self, app: Mainspring, started: float) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._started = started
        self.first_after: float | None = None
        """Seconds until the first run ended."""
        mask = 0
        for code in _COUNTED:
            mask |= code
        app.on(mask, self._note)

    def _note(self, event: Any) -> None:
        word = _COUNTED[event.code]
        if word == "succeeded" and self.first_after is None:
            self.first_after = time.monotonic() - self._started
        subject = f"schedule {event.job_id}" if event.job_id else f"{event.task or event.run_id}()"
        self._counts.setdefault(subject, Counter())[word] += 1

    def show(self, seconds: float) -> None:
        """Print the counts, in a table and a sentence."""
        words = list(dict.fromkeys(_COUNTED.values()))
        columns = [Column("what", cut=True), *(Column(word, right=True) for word in words)]
        echo()
        counts = sorted(dict(self._counts).items())
        table(columns, [[subject, *(str(found[word] or "") for word in words)] for subject, found in counts])
        total: Counter[str] = sum((found for _, found in counts), Counter())
        first = "no run has succeeded yet" if self.first_after is None else f"the first after {self.first_after:.1f} s"
        told = ", ".join(f"{total[word]} {word}" for word in words)
        echo(f"\n{seconds:.0f} s: {told}; {first}.")
