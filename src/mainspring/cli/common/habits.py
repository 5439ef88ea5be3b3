"""Options that people know from other tools, with their counterparts here."""

from __future__ import annotations

from typing import Final

import click

__all__ = ["with_habit"]

_APP: Final = "name the app behind the verb: mainspring worker MODULE:APP, or --app MODULE:APP with the others"
_PROCESSES: Final = "-p/--processes are worker processes, -t/--threads the threads in each"
_ANYWHERE: Final = {"-A": _APP, "--config": _APP, "--url": "a URL is given with --app, too: --app redis://localhost/0"}
_WORKER: Final = {
    "-c": _PROCESSES,
    "-w": _PROCESSES,
    "--concurrency": _PROCESSES,
    "--workers": _PROCESSES,
    "--num-workers": _PROCESSES,
    "--pool": "tasks run in threads, async def on a loop, and @app.task(isolation='process') in processes of their own",
    "-P": "tasks run in threads, async def on a loop, and @app.task(isolation='process') in processes of their own",
    "-l": "here it is --log-level info",
    "--loglevel": "here it is --log-level info",
    "-B": "every worker fires schedules, unless --no-schedule",
    "--beat": "every worker fires schedules, unless --no-schedule",
    "--with-scheduler": "every worker fires schedules, unless --no-schedule",
    "--max-tasks-per-child": "here it is --max-runs",
    "--max-jobs": "here it is --max-runs",
    "--reload": "mainspring dev starts again when a file changes",
}
_FILTERS: Final = frozenset(
    {"--status", "--state", "--queue", "--task", "--job", "--group", "--since", "--before", "--tag"}
)


def with_habit(error: click.NoSuchOption) -> click.NoSuchOption:
    """Add our name of an option to the error, if the option is known from another tool."""
    option = error.option_name
    verb = "" if error.ctx is None else error.ctx.command_path.partition(" ")[2]
    hint = _ANYWHERE.get(option) or (_WORKER.get(option) if verb in ("worker", "dev") else None)
    if hint is None and option in _FILTERS and verb.startswith(("runs", "errors")):
        name = {"--state": "status"}.get(option, option.removeprefix("--"))
        hint = f"conditions are words: {name}:{'failed' if name == 'status' else '...'}"
    if hint is None:
        return error
    return click.NoSuchOption(option, f"No such option {option!r}; {hint}.", ctx=error.ctx)
