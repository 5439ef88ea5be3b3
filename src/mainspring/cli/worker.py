"""`mainspring worker`: run a sentinel in the foreground, over worker processes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from typing import Literal

import click

from mainspring.cli.common.failing import USAGE, CommandFailed
from mainspring.cli.common.target import load_app, target_of
from mainspring.errors import MainspringError, near

__all__ = ["parse_queues", "worker"]

log = logging.getLogger("mainspring.cluster")


def parse_queues(text: str | None) -> dict[str, int | None] | None:
    """Read `mail,default:4`: queues, each with the most of its runs that one worker process executes at once."""
    from mainspring.core.validation import check_queue

    if text is None:
        return None
    queues: dict[str, int | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, limit = part.partition(":")
        if colon and (not limit.isdecimal() or int(limit) < 1):
            raise click.BadParameter(f"{part!r}: the limit after the colon is a whole number of at least 1")
        try:
            queues[check_queue(name)] = int(limit) if colon else None
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    if not queues:
        raise click.BadParameter("name at least one queue, as in -Q mail,default:4")
    return queues


@click.command()
@click.argument("app", metavar="MODULE:APP", required=False)
@click.option("-a", "--app", "where", default=None, metavar="MODULE:APP", help="The same, as the other verbs take it.")
@click.option(
    "-Q", "--queues", default=None, help="Queues to serve, as in mail,default:4. All of the app's by default."
)
@click.option(
    "--include", multiple=True, metavar="MODULE",
    help="A module with tasks and schedules to import, or a pattern such as shop.reports.*; may be repeated.",
)  # fmt: skip
@click.option("-p", "--processes", type=click.IntRange(1), default=None, help="Worker processes; as many as cores.")
@click.option("-t", "--threads", type=click.IntRange(1), default=8, show_default=True, help="Threads in each process.")
@click.option("--burst", is_flag=True, help="End when nothing is left to do.")
@click.option("--max-runs", type=click.IntRange(1), default=None, help="Replace a process after this many runs.")
@click.option("--max-rss", type=click.IntRange(1), default=None, help="Replace a process above this many MB.")
@click.option("--no-schedule", is_flag=True, help="Do not fire due jobs.")
@click.option("--grace", type=click.FloatRange(0), default=25.0, show_default=True, help="Seconds to finish at a stop.")
@click.option(
    "--start-method", type=click.Choice(["spawn", "forkserver", "fork"]), default="spawn", show_default=True,
    help="How worker processes are started.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True,
    help="What to log to stderr.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only; the same as --log-level warning.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Lines for people, or a JSON object a line.",
)  # fmt: skip
def worker(
    app: str | None,
    where: str | None,
    queues: str | None,
    include: tuple[str, ...],
    processes: int | None,
    threads: int,
    burst: bool,
    max_runs: int | None,
    max_rss: int | None,
    no_schedule: bool,
    grace: float,
    start_method: str,
    log_level: str,
    quiet: bool,
    log_format: Literal["text", "json"],
) -> None:
    """Execute the runs of an app's queues, in worker processes under a sentinel.

    APP is module:variable, a module or file with one app in it. The first SIGTERM or Ctrl-C lets started runs end and
    gives back the others; the second ends at once. Nothing is lost either way.

    \b
    Examples:
      mainspring worker shop:app
      mainspring worker shop.py -Q mail,default:4 --processes 4 --quiet
    """
    from mainspring.cluster.log_output import set_up_logging
    from mainspring.cluster.sentinel import Sentinel
    from mainspring.cluster.settings import Settings

    app = target_of(app or where)
    if "://" in app:
        raise CommandFailed("a URL has no code to execute; name the app", "mainspring worker MODULE:APP", USAGE)
    log_level = "warning" if quiet and log_level in ("debug", "info") else log_level
    set_up_logging(log_level, log_format)
    load_app(app, include)  # so that an error in it is shown once, with the user's frames
    try:
        settings = Settings(
            app=app,  # as given: another module that holds the same app may lack this module's tasks
            include=include,
            queues=parse_queues(queues),
            processes=processes or 0,
            threads=threads,
            burst=burst,
            max_runs=max_runs,
            max_rss=None if max_rss is None else max_rss * 1_000_000,
            schedule=not no_schedule,
            grace=grace,
            start_method=start_method,
            log_level=log_level,
            log_format=log_format,
        )
        sentinel = Sentinel(settings)
    except MainspringError as error:
        raise click.ClickException(str(error)) from error
    _warn_of_strange_queues(settings.queues or (), sentinel.app.declared_queues())
    sys.exit(sentinel.run())


def _warn_of_strange_queues(wanted: Iterable[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            log.warning("no task of this app uses the queue %r%s", name, near(name, known))
