"""`mainspring runs`: find runs, look at them, follow their logs, wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.choosing import FilterCommand, read_filter, words_of
from mainspring.cli.common.failing import FAILED, CommandFailed, command
from mainspring.cli.common.output import Column, ago, echo, fields, length, print_json, table
from mainspring.cli.common.target import json_option, on_app, opened, target_of, target_options
from mainspring.cli.common.visible import visible
from mainspring.cli.runs.group import runs
from mainspring.core.insight.run_texts import kind_of, says, shown_call, starts_text, took_of
from mainspring.core.insight.wording import several
from mainspring.core.run import FINAL, WAITING, Status
from mainspring.core.showing.redaction import masked
from mainspring.errors import RunNotFound

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.showing.run_view import RunView

__all__ = ["call_of", "list_", "log", "show", "wait"]

FOLLOW_SECONDS: Final = 0.5
"""The pause of `log --follow` between two checks for new lines, in seconds."""


@runs.command("list", cls=FilterCommand)
@click.argument("words", metavar="[FILTER]...", nargs=-1)
@click.option("-n", "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many to show.")
@click.option("--all", "everything", is_flag=True, help="Look through all runs, not only the newest 10,000.")
@json_option
@target_options
def list_(words: tuple[str, ...], limit: int, everything: bool, as_json: bool, where: str | None, name: str) -> None:
    """Show the newest runs that match a filter.

    \b
    Example:
      mainspring runs list status:failed task:send* since:1h --app shop:app
    """
    from mainspring.core.showing.searching import MOST_RUNS_SEARCHED, search

    with opened(where, name) as app:
        wanted = read_filter(app, words_of(words))
        page = search(app.runs, wanted, limit=limit, most=None if everything else MOST_RUNS_SEARCHED)
        now = app.now()
        lacks = _uncallable(app) if "://" not in target_of(where) else lambda _: False
        rows = [_row(app, run, now, lacks(run)) for run in page.runs]
        records = [_to_json(app, run) for run in page.runs] if as_json else []
    notes = []
    if page.more:
        notes.append(f"there are more: add -n {limit * 10}")
    if not page.complete:
        notes.append(f"looked through the newest {page.looked_through:,} runs: add --all to go on")
    if as_json:
        print_json(records)
    elif rows:
        columns = (
            Column("status"), Column("id"), Column("call", cut=True), Column("made", right=True),
            Column("took", right=True), Column("says", cut=True, optional=True), Column("queue", optional=True),
        )  # fmt: skip
        table(columns, rows)
    else:
        notes.insert(0, "no run matches" if words_of(words) else "no runs are kept")
    for note in notes:
        click.echo(note, err=True)
    if not rows:
        raise click.exceptions.Exit(FAILED)


def _uncallable(app: Mainspring) -> Callable[[RunView], bool]:
    """Return a function that says whether the app's code lacks the function of a waiting run."""
    from mainspring.app.insight.doctor import function_finder

    find, known = function_finder(app), dict[str, bool]()

    def lacks(run: RunView) -> bool:
        if run.status not in WAITING or not run.task or run.queue.startswith("."):
            return False
        if run.task not in known:
            known[run.task] = False
            try:
                find(run.record)
            except Exception:  # importing executes the user's code, which may raise anything
                known[run.task] = True
        return known[run.task]

    return lacks


def _row(app: Mainspring, run: RunView, now: int, lacks: bool) -> list[str]:
    return [
        kind_of(run, now),
        run.id,
        call_of(app, run),
        ago(now - run.record.created_at),
        length(took_of(run, now)),
        says(run) or ("no such task in the code" if lacks else ""),
        run.queue,
    ]


def call_of(app: Mainspring, run: RunView) -> str:
    """Return the call of a run for display: its name and arguments, with secrets masked."""
    from mainspring.core.showing.searching import function_of

    return shown_call(run, function_of(app.runs, run))


def _to_json(app: Mainspring, run: RunView) -> dict[str, Any]:
    record = {**run.to_dict(), "call": call_of(app, run)}
    return {**record, **masked((), {name: record[name] for name in ("result", "progress", "data")})[1]}


def _found(app: Mainspring, run_id: str) -> RunView:
    try:
        return app.get(run_id)
    except RunNotFound:
        raise CommandFailed(
            f"there is no run {run_id!r}; it may have been deleted since", command(f"runs list id:{run_id[:6]}*")
        ) from None


@runs.command()
@click.argument("run_id", metavar="ID")
@json_option
@on_app
def show(app: Mainspring, run_id: str, as_json: bool) -> None:
    """Show all there is to know of a run, with the traceback of its last failure.

    \b
    Example:
      mainspring runs show 019a8c3b5e7d0c4f2a --app shop:app
    """
    run, now = _found(app, run_id), app.now()
    record = _to_json(app, run)
    status, why = kind_of(run, now), app.runs.explain(run.id).sentence
    took = length(took_of(run, now))
    if as_json:
        return print_json(record)
    pairs = [("id", run.id), ("status", status), ("why", why), ("call", record["call"])]
    pairs += [("task", run.task), ("queue", run.queue)]
    pairs += [(name, str(value)) for name in ("job_id", "group", "node", "reason") if (value := record[name])]
    pairs.append(("starts", starts_text(run.record)))
    moments = {"made": "created_at", "due": "run_at", "started": "started_at", "ended": "finished_at"}
    for title, moment in moments.items():
        if record[moment] is not None:
            pairs.append((title, f"{record[moment]:%Y-%m-%d %H:%M:%S %Z}"))
    pairs += [("took", took)] if took else []
    pairs += [("progress", str(run.progress))] if run.progress is not None else []
    if run.status is Status.SUCCEEDED:
        pairs.append(("result", repr(record["result"])))
    if run.unverified is not None:
        pairs.append(("unverified", run.unverified))
    fields(pairs)
    if run.errors:
        echo(f"\nstart {run.errors[-1].attempt} failed")
        _print_lines(run.errors[-1].traceback or str(run.errors[-1]))
    if run.log:
        echo(f"\n{several(len(run.log), 'log line')}: {command(f'runs log {run.id}')}")
    return None


def _print_lines(text: str) -> None:
    for line in text.rstrip().splitlines():
        echo(visible(line))


@runs.command()
@click.argument("run_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@json_option
@on_app
def log(app: Mainspring, run_id: str, follow: bool, as_json: bool) -> None:
    """Print what a run has logged.

    \b
    Example:
      mainspring runs log 019a8c3b5e7d0c4f2a --follow --app shop:app
    """
    run = _found(app, run_id)
    if as_json and not follow:
        return print_json(list(run.log))
    seen: tuple[str, ...] = ()
    while True:
        for line in _new_lines(seen, run.log):
            print_json(line) if as_json else echo(visible(line))
        seen = run.log
        if not follow or run.status in FINAL:
            break
        time.sleep(FOLLOW_SECONDS)
        run = _found(app, run_id)
    if not seen:
        click.echo("it has logged nothing", err=True)
        raise click.exceptions.Exit(FAILED)
    return None


def _new_lines(seen: tuple[str, ...], lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the new lines; the store may have dropped the oldest known ones in the meantime."""
    for dropped in range(len(seen)):
        if lines[: len(seen) - dropped] == seen[dropped:]:
            return lines[len(seen) - dropped :]
    return lines


@runs.command()
@click.argument("run_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", type=click.FloatRange(0), default=None, help="Seconds to wait; without end by default.")
@json_option
@on_app
def wait(app: Mainspring, run_ids: tuple[str, ...], timeout: float | None, as_json: bool) -> None:
    """Wait until runs have ended; end with 1 unless all have succeeded.

    \b
    Example:
      mainspring runs wait 019a8c3b5e7d0c4f2a --timeout 60 --app shop:app
    """
    try:
        ended = app.wait(run_ids, timeout)
    except RunNotFound as error:
        raise CommandFailed(str(error), command("runs list")) from None
    except TimeoutError as error:
        raise CommandFailed(str(error), command(f"runs show {run_ids[0]}")) from None
    records = [_to_json(app, run) for run in ended]
    if as_json:
        print_json(records)
    else:
        for run in ended:
            echo(f"{run.status} {visible(run.id)} {length(run.duration)} {visible(says(run))}".rstrip())
    if any(run.status is not Status.SUCCEEDED for run in ended):
        raise click.exceptions.Exit(FAILED)
