"""Commands that take ids or a filter, and act on one run or on many."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common.output import with_progress
from mainspring.cli.common.target import USAGE, CommandFailed, command
from mainspring.cli.common.visible import visible
from mainspring.core.filters import Filter, FilterError, is_term
from mainspring.errors import RunNotFound, near

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["FilterCommand", "act_on_runs", "ask", "read_filter", "words_of"]

_EXCLUDED = "mainspring.excluded"


class FilterCommand(click.Command):
    """A command whose words may begin with a minus, as in `-task:probe`; such a word is not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        excluded = [word for word in args[:end] if word.startswith("-") and is_term(word)]
        ctx.meta[_EXCLUDED] = excluded
        return super().parse_args(ctx, [word for word in args[:end] if word not in excluded] + args[end:])


def words_of(words: tuple[str, ...]) -> list[str]:
    """Return the words of a command, including those that begin with a minus."""
    return [*words, *click.get_current_context().meta.get(_EXCLUDED, ())]


def read_filter(app: Mainspring, words: Sequence[str]) -> Filter:
    """Read a filter; a mistake in it is a usage error."""
    from mainspring.core.searching import filter_for

    try:
        return filter_for(app.runs, words)
    except FilterError as error:
        raise CommandFailed(str(error), command("runs list status:failed since:1h"), USAGE) from None


def act_on_runs(
    app: Mainspring,
    words: Sequence[str],
    *,
    verb: str,
    done: str,
    able: Collection[str],
    act: Callable[[str], Any],
    dry_run: bool,
    yes: bool,
) -> None:
    """Act on runs by their ids, or on all that match a filter; end with 1 if one of them failed."""
    if not words:
        raise CommandFailed("name runs by their ids, or by a filter", f"mainspring runs {verb} status:failed", USAGE)
    terms = [word for word in words if all(map(is_term, word.split()))]
    if terms and len(terms) < len(words):
        other = next(word for word in words if word not in terms)
        raise CommandFailed(f"give either ids or a filter: {other!r} is no condition such as status:failed", code=USAGE)
    if not terms:
        return _act_on_ids(app, words, verb=verb, done=done, able=able, act=act, dry_run=dry_run)
    from mainspring.core.searching import matching

    chosen: list[str] = []
    others: Counter[str] = Counter()
    for run in matching(app.runs, read_filter(app, words)):
        if run.status in able:
            chosen.append(run.id)
        else:
            others[str(run.status)] += 1
    if not chosen and not others:
        raise CommandFailed("no run matches", command("runs list"))
    left_out = "".join(f"; {number} {status} cannot be" for status, number in sorted(others.items()))
    if dry_run:
        click.echo(f"{len(chosen)} would be {done}{left_out}")
        return None
    if not chosen:
        raise CommandFailed(f"none can be {done}{left_out}", command("runs list"))
    ask(f"{_runs(len(chosen))} will be {done}{left_out}. Go on?", f"mainspring runs {verb} FILTER --dry-run", yes)
    failures = [problem for run_id in with_progress(chosen, verb) if (problem := _try(app, act, run_id, verb))]
    click.echo(f"{done} {_runs(len(chosen) - len(failures))}{left_out}")
    for problem in failures[:10]:
        click.echo(problem, err=True)
    if failures:
        raise CommandFailed(f"{_runs(len(failures))} could not be {done}", command("runs list"))
    return None


def _runs(number: int) -> str:
    return f"{number:,} run{'s' * (number != 1)}"


def ask(question: str, try_first: str, yes: bool) -> None:
    """Ask a person before many things are changed; scripts pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(f"{question} Say so with --yes", try_first, USAGE)
    if not click.confirm(question, err=True):
        raise click.exceptions.Exit(1)


def _act_on_ids(
    app: Mainspring,
    run_ids: Sequence[str],
    *,
    verb: str,
    done: str,
    able: Collection[str],
    act: Callable[[str], Any],
    dry_run: bool,
) -> None:
    failed = False
    for run_id in run_ids:
        problem = ""
        if dry_run:
            try:
                status = app.get(run_id).status
                problem = "" if status in able else f"{run_id}: it is {status} and cannot be {done}"
            except RunNotFound:
                problem = _not_found(run_id)
        else:
            problem = _try(app, act, run_id, verb)
        failed = failed or bool(problem)
        words = f"would be {done}" if dry_run else done
        click.echo(problem if problem else f"{words} {visible(run_id)}", err=bool(problem))
    if failed:
        raise CommandFailed(f"not all could be {done}", command("runs list"))


def _try(app: Mainspring, act: Callable[[str], Any], run_id: str, verb: str) -> str:
    """Act on a run; return what went wrong, if anything did."""
    try:
        if act(run_id) is not False:
            return ""
        status = app.get(run_id).status
    except RunNotFound:
        return _not_found(run_id)
    except ValueError as error:
        return str(visible(str(error)))
    return f"{visible(run_id)}: it is {status}, so there is nothing to {verb}"


def _not_found(run_id: str) -> str:
    from mainspring.core.filters import KEYS

    key, colon, _ = run_id.partition(":")
    hint = near(key, KEYS) if colon and key.isalpha() else ""
    return str(visible(f"{run_id}: there is no run of this id{hint if 'did you mean' in hint else ''}"))
