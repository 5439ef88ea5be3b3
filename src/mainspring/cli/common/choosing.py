"""Commands that take ids or a filter, and act on one or many runs."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mainspring.cli.common.failing import USAGE, CommandFailed, command
from mainspring.cli.common.output import with_progress
from mainspring.cli.common.target import on_app, why_option
from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import several
from mainspring.core.showing.filters import Filter, FilterError, is_term
from mainspring.errors import RunNotFound, near

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.insight.bulk import BulkVerb

__all__ = ["ChosenRuns", "FilterCommand", "ask", "on_runs", "read_filter", "words_of"]

_EXCLUDED = "mainspring.excluded"


class FilterCommand(click.Command):
    """A command whose words may begin with a minus, as in `-task:probe`, without being options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        excluded = [word for word in args[:end] if word.startswith("-") and is_term(word)]
        ctx.meta[_EXCLUDED] = excluded
        return super().parse_args(ctx, [word for word in args[:end] if word not in excluded] + args[end:])


def words_of(words: tuple[str, ...]) -> list[str]:
    """Return the words of a command, including those that begin with a minus."""
    return [*words, *click.get_current_context().meta.get(_EXCLUDED, ())]


def read_filter(app: Mainspring, words: Sequence[str]) -> Filter:
    """Read a filter; report a mistake in it as a usage error."""
    from mainspring.core.showing.searching import filter_for

    try:
        return filter_for(app.runs, words)
    except FilterError as error:
        raise CommandFailed(str(error), command("runs list status:failed since:1h"), USAGE) from None


def on_runs(func: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options that choose the runs a command acts on."""

    @functools.wraps(func)
    def call(app: Mainspring, *, words: tuple[str, ...], dry_run: bool, yes: bool, **options: Any) -> None:
        func(ChosenRuns(app, words_of(words), dry_run, yes), **options)

    made = why_option(on_app(call))
    made = click.option("-y", "--yes", is_flag=True, help="Do not ask before acting on all that match.")(made)
    made = click.option("--dry-run", is_flag=True, help="Only say what would be done.")(made)
    return click.argument("words", metavar="ID...|FILTER...", nargs=-1)(made)


class ChosenRuns(NamedTuple):
    """The runs that a command acts on: those with certain ids, or all that match a filter."""

    app: Mainspring
    words: Sequence[str]
    dry_run: bool
    yes: bool

    def each(self, verb: str, **options: Any) -> None:
        """Act on each run that the verb applies to; exit with 1 if any of them failed."""
        from mainspring.app.insight.bulk import VERBS

        words = self.words
        if not words:
            raise CommandFailed(
                "name runs by their ids, or by a filter", f"mainspring runs {verb} status:failed", USAGE
            )
        terms = [word for word in words if all(map(is_term, word.split()))]
        if terms and len(terms) < len(words):
            other = next(word for word in words if word not in terms)
            raise CommandFailed(
                f"give either ids or a filter: {other!r} is not a condition such as status:failed", code=USAGE
            )
        act = functools.partial(getattr(self.app, verb), **options)
        if terms:
            self._matching(verb, VERBS[verb], act)
        else:
            self._by_ids(verb, VERBS[verb], act)

    def _matching(self, verb: str, meaning: BulkVerb, act: Callable[[str], Any]) -> None:
        from mainspring.core.showing.searching import matching

        done = meaning.done
        chosen: list[str] = []
        others: Counter[str] = Counter()
        for run in matching(self.app.runs, read_filter(self.app, self.words)):
            if run.status in meaning.able:
                chosen.append(run.id)
            else:
                others[str(run.status)] += 1
        if not chosen and not others:
            raise CommandFailed("no run matches", command("runs list"))
        left_out = "".join(f"; {number} {status} cannot be" for status, number in sorted(others.items()))
        if self.dry_run:
            return click.echo(f"{len(chosen)} would be {done}{left_out}")
        if not chosen:
            raise CommandFailed(f"none can be {done}{left_out}", command("runs list"))
        question = f"{several(len(chosen), 'run')} will be {done}{left_out}. Go on?"
        ask(question, f"mainspring runs {verb} FILTER --dry-run", self.yes)
        failures = [problem for run_id in with_progress(chosen, verb) if (problem := self._try(act, run_id, verb))]
        click.echo(f"{done} {several(len(chosen) - len(failures), 'run')}{left_out}")
        for problem in failures[:10]:
            click.echo(problem, err=True)
        if failures:
            raise CommandFailed(f"{several(len(failures), 'run')} could not be {done}", command("runs list"))
        return None

    def _by_ids(self, verb: str, meaning: BulkVerb, act: Callable[[str], Any]) -> None:
        failed, done = False, meaning.done
        for run_id in self.words:
            problem = self._foresee(run_id, meaning) if self.dry_run else self._try(act, run_id, verb)
            failed = failed or bool(problem)
            words = f"would be {done}" if self.dry_run else done
            click.echo(problem if problem else f"{words} {visible(run_id)}", err=bool(problem))
        if failed:
            raise CommandFailed(f"not all could be {done}", command("runs list"))

    def _foresee(self, run_id: str, meaning: BulkVerb) -> str:
        """Return what would go wrong with a run; empty if nothing would."""
        try:
            status = self.app.get(run_id).status
        except RunNotFound:
            return _not_found(run_id)
        return "" if status in meaning.able else f"{run_id}: it is {status} and cannot be {meaning.done}"

    def _try(self, act: Callable[[str], Any], run_id: str, verb: str) -> str:
        """Act on a run; return what went wrong, or an empty text."""
        try:
            if act(run_id) is not False:
                return ""
            status = self.app.get(run_id).status
        except RunNotFound:
            return _not_found(run_id)
        except ValueError as error:
            return str(visible(str(error)))
        return f"{visible(run_id)}: it is {status}, so there is nothing to {verb}"


def ask(question: str, try_first: str, yes: bool) -> None:
    """Ask for confirmation before changing many records; scripts pass --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(f"{question} Say so with --yes", try_first, USAGE)
    if not click.confirm(question, err=True):
        raise click.exceptions.Exit(1)


def _not_found(run_id: str) -> str:
    from mainspring.core.showing.filters import KEYS

    key, colon, _ = run_id.partition(":")
    hint = near(key, KEYS) if colon and key.isalpha() else ""
    return str(visible(f"{run_id}: there is no run of this id{hint if 'did you mean' in hint else ''}"))
