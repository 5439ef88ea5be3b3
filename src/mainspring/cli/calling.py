"""`mainspring enqueue` and `mainspring call`: run a task on a worker, and wait for its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from mainspring.cli.common.failing import FAILED, USAGE, CommandFailed, command
from mainspring.cli.common.output import echo, print_json
from mainspring.cli.common.reading import Length, find_task, policy_of, policy_options, read_arguments, read_moment
from mainspring.cli.common.target import json_option, on_new_app, stacked
from mainspring.cli.common.visible import visible
from mainspring.core.references import variable_of
from mainspring.core.run import Status
from mainspring.core.showing.redaction import masked

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.handle import RunHandle
    from mainspring.core.showing.run_view import RunView

__all__ = ["call", "enqueue"]


_call_options: Final = stacked(
    click.argument("task", metavar="TASK"),
    click.argument("words", metavar="[ARG|NAME=VALUE]...", nargs=-1),
    click.option("--delay", type=Length(), default=None, metavar="LENGTH", help="Start after 90s, 5m, 1h30m."),
    click.option("--at", default=None, metavar="TIME", help="Start at 14:00, 2026-03-01T14:00, or 5m from now."),
    policy_options,
    click.option("--unique", default=None, metavar="KEY", help="Not while a run of the task has this key."),
    click.option("--group", default=None, help="A group to find the run by."),
    click.option("--id", "run_id", default=None, help="An id of your own; a known one is not enqueued again."),
    json_option,
    on_new_app,
)


@click.command()
@_call_options
def enqueue(app: Mainspring, task: str, words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Have a worker call TASK, and print the id of the run.

    TASK is the name of a task, with or without its module. Each argument is read as JSON if it is JSON, and as text
    otherwise: 42 is a number, '"42"' is text. Write -- in front of an argument that begins with a minus.

    \b
    Examples:
      mainspring enqueue send_mail ann subject="Hello" --app shop:app
      mainspring enqueue shop:resize cat.png width=100 --delay 5m --app shop:app
    """
    run = app.get(_enqueue(app, task, words, **options).id)
    if as_json:
        return print_json({"id": run.id, "status": run.status, "queue": run.queue, "run_at": run.run_at})
    echo(f"enqueued {visible(run.id)}")
    return _warn_if_unserved(app, run)


@click.command()
@_call_options
@click.option("--timeout", type=click.FloatRange(0), default=None, help="Seconds to wait; without end by default.")
def call(
    app: Mainspring, task: str, words: tuple[str, ...], timeout: float | None, as_json: bool, **options: Any
) -> None:
    """Have a worker call TASK, wait for it, and print what it returned; end with 1 if it fails.

    Arguments are read as by `mainspring enqueue`.

    \b
    Examples:
      mainspring call add 2 3 --app shop:app
      mainspring call shop:report month=2026-03 --timeout 60 --json --app shop:app
    """
    handle = _enqueue(app, task, words, **options)
    try:
        _warn_if_unserved(app, app.get(handle.id))
        run = handle.wait(timeout)
    except TimeoutError as error:
        raise CommandFailed(str(error), command(f"runs show {handle.id}")) from None
    except KeyboardInterrupt:
        raise CommandFailed(
            f"nobody waits for {handle.id} now; it goes on", command(f"runs cancel {handle.id}")
        ) from None
    result = masked((), {"result": run.result})[1]["result"]
    if as_json:
        shown = {"id": run.id, "status": run.status, "result": result, "duration": run.duration}
        print_json(shown | {"reason": run.reason, "error": None if run.error is None else str(run.error)})
        if run.status is not Status.SUCCEEDED:
            raise click.exceptions.Exit(FAILED)
    elif run.status is not Status.SUCCEEDED or run.unverified is not None:
        raise CommandFailed(f"run {run.id} {_end(run)}", command(f"runs show {run.id}"))
    elif result is not None:
        echo("\n".join(map(visible, result.splitlines())) if isinstance(result, str) else visible(repr(result)))


def _end(run: RunView) -> str:
    if run.unverified is not None:
        return f"says that it {run.status}, and nobody who has the key has signed that: {run.unverified}"
    why = run.error if run.status is Status.FAILED else run.reason
    return f"{'was ' * (run.status is Status.CANCELLED)}{run.status}{f': {why}' if why else ''}"


def _enqueue(
    app: Mainspring,
    task: str,
    words: tuple[str, ...],
    *,
    run_id: str | None,
    at: str | None,
    **options: Any,
) -> RunHandle[Any]:
    if app.store.volatile and not app.inline:
        raise CommandFailed("this app keeps its runs in memory, which ends with this command; give it a URL that lasts")
    found = find_task(app, task)
    args, kwargs = read_arguments(words)
    moment = None if at is None else read_moment(at, app.now(), app.timezone)
    try:
        return found.options(**policy_of(**options, id=run_id, at=moment)).enqueue(*args, **kwargs)
    except (TypeError, ValueError) as error:
        if isinstance(error, OSError):
            raise
        raise CommandFailed(str(error), command("tasks"), USAGE) from None


def _warn_if_unserved(app: Mainspring, run: RunView) -> None:
    """Warn if no worker will execute a run."""
    if run.status is not Status.PENDING:
        return
    queue = visible(run.queue)
    if any(info.name == run.queue and info.paused for info in app.queues()):
        click.echo(f"the queue {queue} is paused\nTry: {command(f'queues resume {queue}')}", err=True)
    elif not any(run.queue in node.queues and node.state != "silent" for node in app.nodes()):
        path = variable_of(app) or "MODULE:APP"
        click.echo(f"no worker serves the queue {queue}\nTry: mainspring worker {path} -Q {queue}", err=True)
