"""Search runs by a filter: a store narrows them down by its indexes, and the search tests the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any, Final, NamedTuple, Protocol

from mainspring.core.insight.acts import Act
from mainspring.core.instants import from_us, to_us
from mainspring.core.run import Call, Run
from mainspring.core.showing.filters import Filter, parse_filter
from mainspring.core.showing.run_view import RunPage, RunView

__all__ = [
    "MOST_RUNS_SEARCHED",
    "RunCount",
    "RunSource",
    "SearchPage",
    "count_up_to",
    "filter_for",
    "function_of",
    "matching",
    "search",
]

MOST_RUNS_SEARCHED: Final = 10_000
"""Search this many of the newest runs, unless the caller asks for more."""
SEARCH_PAGE_RUNS: Final = 1000


class RunSource(Protocol):
    """The part of an app that a search needs."""

    @property
    def timezone(self) -> tzinfo:
        """The zone of times in a filter."""

    @property
    def tasks(self) -> Any:
        """The tasks by name."""

    def now(self) -> int:
        """Return the store's time."""

    def find(self, *args: Any, **wanted: Any) -> RunPage:
        """Return the newest runs that match the conditions that a store can look up."""

    def count_capped(self, *args: Any, **wanted: Any) -> RunCount:
        """Return how many runs match the conditions that a store can look up, up to a cap."""

    def made_behind(self, after: RunView | None, number: int) -> datetime | None:
        """Return when the run that is `number` runs older than `after`, or than the newest, was made."""

    def views(self, run_ids: Sequence[str]) -> list[RunView]:
        """Return the runs with these ids, without those that are gone."""

    def acts(self) -> list[Act]:
        """Return the acts of people, as far back as the store keeps them."""


class SearchPage(NamedTuple):
    """Matching runs, newest first; `more` says that others match, `complete` that every run was searched.

    `next` is the run after which to continue the search, None at its end.
    """

    runs: list[RunView]
    looked_through: int
    more: bool
    complete: bool
    next: RunView | None = None


class RunCount(NamedTuple):
    """The number of matching runs, and whether it includes all of them."""

    number: int
    exact: bool


def filter_for(app: RunSource, text: str | Iterable[str]) -> Filter:
    """Read a filter, with times relative to the store's clock and in the app's zone; `by:` reads the acts of people."""
    return parse_filter(text, from_us(app.now(), app.timezone), app.acts)


def search(
    app: RunSource,
    wanted: Filter,
    *,
    limit: int,
    most: int | None = MOST_RUNS_SEARCHED,
    after: RunView | None = None,
) -> SearchPage:
    """Return up to `limit` of the newest matching runs; search at most `most` runs. `after` is the last page's end."""
    found: list[RunView] = []
    number, last = 0, after
    end = app.made_behind(after, MOST_RUNS_SEARCHED) if most is not None and wanted.is_walked() else None
    if end is not None and wanted.since is not None and wanted.since >= end:
        end = None  # the filter itself ends earlier
    for number, run in enumerate(_candidates(app, wanted, limit + 1, after, end), 1):
        if wanted.matches(run, function_of(app, run)):
            if len(found) == limit:
                return SearchPage(found, number, more=True, complete=True, next=last)
            found.append(run)
        last = run
        if most is not None and number >= most:
            return SearchPage(found, number, more=False, complete=False, next=last)
    if end is not None:
        return SearchPage(found, MOST_RUNS_SEARCHED, more=False, complete=False, next=_before(end))
    return SearchPage(found, number, more=False, complete=True)


def _before(end: datetime) -> RunView:
    """Return a position in the list after all runs that were made at that time or later."""
    return RunView(Run(id="!", call=Call(""), created_at=to_us(end)), None)


def count_up_to(app: RunSource, wanted: Filter, cap: int) -> RunCount:
    """Return how many runs match: the store counts if it has an index, else a search tests runs up to the cap."""
    if wanted.is_indexed():
        statuses = wanted.statuses()
        if statuses == ():
            return RunCount(0, True)
        return app.count_capped(status=statuses, cap=cap, **_names(wanted))
    page = search(app, wanted, limit=cap, most=cap)
    return RunCount(len(page.runs), page.complete and not page.more)


def matching(
    app: RunSource, wanted: Filter, before: int | None = None, after: RunView | None = None
) -> Iterator[RunView]:
    """Yield all matching runs, newest first, without those made after `before` or during the search.

    `after` is the run behind which the search begins.
    """
    asked_at = app.now() if before is None else before
    for run in _candidates(app, wanted, SEARCH_PAGE_RUNS, after):
        if run.record.created_at <= asked_at and wanted.matches(run, function_of(app, run)):
            yield run


def function_of(app: RunSource, run: RunView) -> Callable[..., Any] | None:
    """Return the function of a run's task if this process knows it."""
    found: Callable[..., Any] | None = app.tasks.function(run.task)
    return found


def _candidates(
    app: RunSource, wanted: Filter, size: int, after: RunView | None = None, end: datetime | None = None
) -> Iterator[RunView]:
    """Yield the runs that a store finds for a filter, page by page, down to the time `end`."""
    ids = wanted.ids()
    if ids is not None:
        yield from _of_ids(app, sorted(ids), after)
        return
    statuses = wanted.statuses()
    if statuses == ():  # two terms exclude each other
        return
    size = min(size, SEARCH_PAGE_RUNS)
    while True:
        page = app.find(status=statuses, **_names(wanted), since=end or wanted.since, limit=size, after=after)
        yield from page
        if not page.more:
            return
        after, size = page[-1], SEARCH_PAGE_RUNS


def _names(wanted: Filter) -> dict[str, str | None]:
    return {key: wanted.only(key) for key in ("queue", "group", "job")}


def _of_ids(app: RunSource, run_ids: Sequence[str], after: RunView | None) -> list[RunView]:
    """Return the runs with these ids that come after a run, newest first."""
    starts = range(0, len(run_ids), SEARCH_PAGE_RUNS)
    found = [run for start in starts for run in app.views(run_ids[start : start + SEARCH_PAGE_RUNS])]
    found.sort(key=_age, reverse=True)
    return [run for run in found if after is None or _age(run) < _age(after)]


def _age(run: RunView) -> tuple[int, str]:
    return run.record.created_at, run.id
