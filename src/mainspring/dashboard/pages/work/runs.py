"""Runs: the filter, the matches over time, their numbers by status, and the newest of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from mainspring.core.insight.run_texts import kind_of
from mainspring.core.insight.wording import several
from mainspring.core.instants import SECOND, to_us
from mainspring.core.references import parameters_of
from mainspring.core.run import HELD_PREFIX, Status
from mainspring.core.showing.filters import KEYS, STATUSES, FilterError
from mainspring.core.showing.run_view import RunView
from mainspring.core.showing.searching import RunCount, SearchPage, filter_for
from mainspring.dashboard.filtering import WantedRuns, cursor_of, run_at_cursor
from mainspring.dashboard.history import deploys_within
from mainspring.dashboard.looks.charts import Step
from mainspring.dashboard.looks.clock_labels import clock_labels
from mainspring.dashboard.looks.rows import RunLine, run_row
from mainspring.dashboard.looks.values import count_text
from mainspring.dashboard.memo import remembered_soon
from mainspring.dashboard.page import Page, View
from mainspring.dashboard.pages.work.bulk import ACTIONS
from mainspring.dashboard.pages.work.limits import gate_words
from mainspring.dashboard.pages.work.queues import QueueRow, queue_rows

__all__ = ["PAGE"]

PAGE_RUNS: Final = 50
MOST_PAGE_RUNS: Final = 200
RUNS_SEARCHED: Final = 1000
"""The most runs to search for one page, for a filter without an index."""
RUNS_DRAWN: Final = 400
"""The number of newest matches to draw, for a filter with an index."""
COUNT_CAP: Final = 10_000
CONDITIONS_TRIED: Final = 5
CULPRIT_CAP: Final = 1000
"""The cap of the counts that find the condition of a filter that excludes most."""
COUNTS_SECONDS: Final = 3.0
BARS: Final = 60
STRETCHES: Final = (900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
"""The possible lengths of a chart of runs in seconds, if no filter sets its beginning."""
MOST_SHARE: Final = 0.85
FACETS: Final = (
    *("waiting", "delayed", "blocked", "running", "retrying"),
    *("succeeded", "failed", "cancelled", "missed", "broken"),
)


class Facet(NamedTuple):
    """A status to filter by: the number of its runs, and whether it is selected."""

    kind: str
    number: str
    url: str
    here: bool


class Culprit(NamedTuple):
    """The condition that excludes most: its key and value, the number of matches without it, and a link."""

    key: str
    text: str
    number: str
    url: str
    total: int


def read(view: View) -> dict[str, Any]:
    """Read the page of runs that the URL requests."""
    wanted = WantedRuns(view)
    size = view.number("limit", PAGE_RUNS, 1, MOST_PAGE_RUNS)
    after = run_at_cursor(view.text("after"))
    data: dict[str, Any] = {"wanted": wanted, "tokens": wanted.tokens(), "problem": wanted.problem, "page": None}
    if not wanted.problem:
        try:
            data["page"] = _found(view, wanted, size, after)
        except FilterError as error:
            data["problem"] = str(error)
    if data["problem"]:
        data["status"] = 400
    page: SearchPage | None = data["page"]
    data["rows"] = [] if page is None else _rows(view, page.runs)
    data |= _paging(wanted, page, after is not None)
    data |= {"known": _suggestions(view), "narrowed": bool(wanted.terms), "culprit": None}
    if page is not None and page.complete and not data["rows"] and after is None:
        data["culprit"] = _culprit(view, wanted)
    return data


def _culprit(view: View, wanted: WantedRuns) -> Culprit | None:
    """Return the condition without which most runs match, among the first few; None if no single one is to blame."""
    found = []
    for key in sorted(wanted.terms)[:CONDITIONS_TRIED]:
        without = wanted.without(key)
        count = view.cached(("runs.without", without), COUNTS_SECONDS, partial(_few, view, without))
        if count.number:
            found.append(
                Culprit(key, ",".join(wanted.terms[key]), count_text(count), wanted.url(**{key: None}), count.number)
            )
    return max(found, key=lambda each: each.total, default=None)


def _few(view: View, text: str) -> RunCount:
    """Count the matching runs if that is quick."""
    if filter_for(view.app.runs, text).is_indexed():
        return view.app.count_up_to(text, CULPRIT_CAP)
    seen = view.app.search(text, limit=CULPRIT_CAP, most=RUNS_SEARCHED)
    return RunCount(len(seen.runs), seen.complete and not seen.more)


def _rows(view: View, runs: Sequence[RunView]) -> list[RunLine]:
    """Return the rows of a table; a waiting run shows the reason, if its queue gives one."""
    rows = [run_row(view.app, run, view.now) for run in runs]
    if not any(row.kind in ("waiting", "delayed", "blocked") for row in rows):
        return rows
    queues = {row.info.name: row for row in queue_rows(view)}
    return [row if row.says else row._replace(says=_waits(view, row, queues.get(row.run.queue))) for row in rows]


def _waits(view: View, row: RunLine, queue: QueueRow | None) -> str:
    if row.kind == "blocked":
        if not row.run.waits and row.run.record.gate is not None:
            return f"waits for a slot of {gate_words(row.run.record.gate)}"
        return f"waits for {several(max(1, row.run.waits), 'run')}"
    if row.run.queue.startswith(HELD_PREFIX):
        return "waits for its signal"
    if row.kind == "delayed":
        return f"set for {view.times.text(row.run.record.run_at)}"
    if row.kind != "waiting" or queue is None:
        return ""
    if queue.state == "paused":
        return "its queue is paused"
    if queue.state == "unserved":
        return "no living node serves its queue"
    if queue.state == "full" and queue.limit is not None and queue.info.running >= queue.limit:
        return f"the limit of its queue is {queue.limit:,}"
    return f"{queue.info.running} of {queue.slots} slots are busy" if queue.state == "full" else ""


def _found(view: View, wanted: WantedRuns, size: int, after: RunView | None) -> SearchPage:
    """Find a page; without an index, one pass over the runs serves the page, the chart and the counts."""
    if after is None and not filter_for(view.app.runs, wanted.without("status")).is_indexed():
        seen = _newest_matches(view, wanted.without("status"))
        mine = [run for run in seen.runs if _has_status(run, wanted, view.now)]
        rest = mine[size - 1] if len(mine) > size else seen.next
        return SearchPage(mine[:size], seen.looked_through, len(mine) > size, seen.complete, rest)
    return view.app.search(wanted.text, limit=size, after=after, most=RUNS_SEARCHED)


def _has_status(run: RunView, wanted: WantedRuns, now: int) -> bool:
    chosen = wanted.terms.get("status", [])
    return not chosen or bool({str(run.status), kind_of(run, now)} & set(chosen))


def _paging(wanted: WantedRuns, page: SearchPage | None, later: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"newest": wanted.url() if later else "", "older": "", "further": ""}
    if page is not None and page.next is not None:
        found["older" if page.more else "further"] = wanted.url(after=cursor_of(page.next))
    return found


def _suggestions(view: View) -> list[str]:
    """Return suggestions for the filter: the keys, and known values."""

    def read() -> list[str]:
        tasks = sorted(task.name.rpartition(":")[2] for task in view.tasks)
        words = [f"{key}:" for key in KEYS] + [f"status:{each}" for each in STATUSES]
        words += [f"queue:{queue.name}" for queue in view.app.queues()][:50] + [f"task:{name}" for name in tasks][:100]
        words += sorted({f"arg.{name}:" for task in view.app.tasks for name in parameters_of(task.func)})[:100]
        words += [f"node:{host}*" for host in sorted({node.host for node in view.app.nodes()})][:20]
        return [*words, "since:15m", "since:1h", "since:1d", "took:>30s", "wait:>5m", "starts:>1"]

    return view.cached("runs.suggestions", 30.0, read)


# -- how many, and when --------------------------------------------------------------------------------------------


def _newest_matches(view: View, text: str) -> SearchPage:
    """Return the newest matches for a chart, from a limited search."""
    indexed = filter_for(view.app.runs, text).is_indexed()  # a bad filter raises even if there is a remembered answer
    most = RUNS_DRAWN if indexed else RUNS_SEARCHED
    return view.cached(("runs.newest", text), COUNTS_SECONDS, lambda: view.app.search(text, limit=most, most=most))


def facets(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Count the matches by status."""
    wanted: WantedRuns = data["wanted"]
    if data["problem"]:
        return {"facets": [], "total": ""}
    counts = facets_of(view, wanted.without("status"))
    chosen = wanted.terms.get("status", [])
    if counts is None:  # they are still being counted; an update brings them
        found = [Facet(kind, "", wanted.url(status=kind), chosen == [kind]) for kind in FACETS]
        return {"facets": found, "total": "", "all_url": wanted.url(status=None), "all_here": not chosen}
    found = [
        Facet(kind, count_text(counts[kind]), wanted.url(status=kind), chosen == [kind])
        for kind in FACETS
        if counts[kind].number or not counts[kind].exact or kind in chosen
    ]
    total = RunCount(sum(each.number for each in counts.values()), all(each.exact for each in counts.values()))
    return {"facets": found, "total": count_text(total), "all_url": wanted.url(status=None), "all_here": not chosen}


def facets_of(view: View, text: str) -> dict[str, RunCount] | None:
    """Count the matches of a filter without a status, by status, exactly or up to a cap; None if it takes too long."""
    return remembered_soon(view.app, ("runs.facets", text), COUNTS_SECONDS, lambda: _count(view, text))


def _count(view: View, text: str) -> dict[str, RunCount]:
    wanted = filter_for(view.app.runs, text)
    if not wanted.is_indexed():
        seen = _newest_matches(view, text)
        kinds = Counter(kind_of(run, view.now) for run in seen.runs)
        return {kind: RunCount(kinds[kind], seen.complete and not seen.more) for kind in FACETS}
    counts = {
        str(status): view.app.count_up_to(f"{text} status:{status}".strip(), COUNT_CAP)
        for status in Status
        if status is not Status.PENDING
    }
    return counts | _pending(view, f"{text} status:pending".strip())


def _pending(view: View, text: str) -> dict[str, RunCount]:
    """Distinguish waiting runs from delayed and retried ones by reading each, if that is quick."""
    number = view.app.count_up_to(text, COUNT_CAP).number
    page = view.app.search(text, limit=RUNS_DRAWN, most=RUNS_DRAWN) if number else None
    kinds: Counter[str] = Counter() if page is None else Counter(kind_of(run, view.now) for run in page.runs)
    if number <= RUNS_DRAWN:
        return {kind: RunCount(kinds[kind], True) for kind in ("waiting", "delayed", "retrying")}
    rest = RunCount(number - kinds["delayed"] - kinds["retrying"], False)
    return {"waiting": rest, **{kind: RunCount(kinds[kind], False) for kind in ("delayed", "retrying")}}


def histogram(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Spread the newest matches over the time in which they were made."""
    if data["problem"]:
        return {"steps": []}
    wanted: WantedRuns = data["wanted"]
    indexed = filter_for(view.app.runs, wanted.without("status")).is_indexed()
    seen = _newest_matches(view, wanted.text if indexed else wanted.without("status"))
    runs, complete = [run for run in seen.runs if _has_status(run, wanted, view.now)], seen.complete and not seen.more
    if not runs:
        return {"steps": []}
    since = filter_for(view.app.runs, wanted.text).since
    begin = _beginning(runs, view.now) if since is None or not complete else to_us(since)
    shown = [run for run in runs if run.record.created_at >= begin]
    return {
        "steps": _steps(view, shown, begin),
        "deploys": deploys_within(view.app.marks(view.times.local(begin)), begin, view.now),
        "spread": f"{'' if complete and len(shown) == len(runs) else 'The newest '}{len(shown):,} runs",
    }


def _beginning(runs: Sequence[RunView], now: int) -> int:
    """Return the default beginning of a chart of runs: the shortest range that holds most of them."""
    for seconds in STRETCHES:
        begin = now - seconds * SECOND
        if sum(run.record.created_at >= begin for run in runs) >= MOST_SHARE * len(runs):
            return begin
    return min(runs[-1].record.created_at, now - BARS * SECOND)


def _steps(view: View, runs: Sequence[RunView], begin: int) -> list[Step]:
    width = max(1, (view.now - begin) // BARS + 1)
    good, bad = Counter[int](), Counter[int]()
    for run in runs:
        number = min(BARS - 1, max(0, (run.record.created_at - begin) // width))
        (bad if run.status in (Status.FAILED, Status.BROKEN, Status.MISSED) else good)[number] += 1
    steps = []
    for number, label in enumerate(clock_labels(view.times, begin, width, BARS)):
        moment = view.times.local(begin + number * width)
        tip = f"{moment:%a %H:%M:%S}\n{good[number]} made" + (f"\n{bad[number]} failed" if bad[number] else "")
        steps.append(Step(good[number], bad[number], tip, *label))
    return steps


PAGE = Page(
    path="/runs",
    nav="runs",
    title="Runs",
    template="work/runs.html",
    read=read,
    regions={"histogram": histogram, "facets": facets, "table": None},
    actions=ACTIONS,
)
