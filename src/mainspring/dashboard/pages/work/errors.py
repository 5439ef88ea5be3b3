"""Errors, grouped by exception and place in the user's code; the chosen group with its common facts, trace and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from mainspring.core.instants import SECOND, to_us
from mainspring.core.showing.failures import ErrorGroup, in_common
from mainspring.core.showing.run_view import RunView
from mainspring.core.showing.searching import function_of
from mainspring.dashboard.filtering import text_of
from mainspring.dashboard.history import RANGES, deploys_within
from mainspring.dashboard.looks.charts import Step
from mainspring.dashboard.looks.clock_labels import clock_labels
from mainspring.dashboard.looks.rows import RETRYABLE, run_row
from mainspring.dashboard.looks.spreads import hanging
from mainspring.dashboard.looks.tracebacks import trace_lines
from mainspring.dashboard.page import Page, View

__all__ = ["GROUP_PAGE", "PAGE", "failure_bars"]

ORDERS: Final = ("newest", "most", "rising")
ERRORS_SECONDS: Final = 3.0
RUNS_LOOKED_AT: Final = 600
"""The failed runs to read for messages, traces and common facts; the total number comes from counters."""
BARS: Final = 12
CHART_BARS: Final = 48
MOST_GROUPS: Final = 50
MOST_RUNS_SHOWN: Final = 10


class GroupRow(NamedTuple):
    """A group in the list: its bars over the range, and a tag if it is new or rising."""

    group: ErrorGroup
    bars: list[int]
    tag: str
    tag_kind: str
    here: bool


def read(view: View) -> dict[str, Any]:
    """Read the groups of the range, and choose one."""
    span = view.choice("since", RANGES, "24h")
    order = view.choice("order", ORDERS, "newest")
    wanted = view.text("q", most=200)
    since = RANGES[span].length
    page = view.cached(("errors", since), ERRORS_SECONDS, lambda: view.app.errors(since, most=RUNS_LOOKED_AT))
    begin = view.now - int(since.total_seconds() * SECOND)
    key = view.params.get("key", "")
    rows = [_row(view, group, begin, key) for group in page.groups if _fits(group, wanted)]
    if order == "most":
        rows.sort(key=lambda row: -row.group.count)
    elif order == "rising":
        rows.sort(key=lambda row: (row.tag != "rising", -_growth(row.bars)))
    chosen = next((row for row in rows if row.here), None)
    if chosen is None and rows and not key:
        chosen = rows[0]
        rows[0] = chosen._replace(here=True)
    return {
        "rows": rows[:MOST_GROUPS],
        "found": len(rows),
        "chosen": chosen,
        "missing": key if key and chosen is None else "",
        "span": span,
        "order": order,
        "wanted": wanted,
        "errors": page,
        "begin": begin,
        "failures": sum(row.group.count for row in rows),
    }


def _fits(group: ErrorGroup, wanted: str) -> bool:
    said = f"{group.type} {group.place} {group.newest.message} {' '.join(group.tasks)}".lower()
    return all(word in said for word in wanted.lower().split())


def _row(view: View, group: ErrorGroup, begin: int, key: str) -> GroupRow:
    bars = failure_bars(group, begin, view.now)
    tag, kind = "", ""
    first = to_us(group.oldest.at)
    marks = view.cached("errors.marks", 10.0, lambda: view.app.marks(timedelta(days=30), limit=20))
    last_mark = next((mark for mark in marks if to_us(mark.at) <= view.now), None)
    if last_mark is not None and first >= to_us(last_mark.at) > begin:
        tag, kind = f"new since {view.times.local(to_us(last_mark.at)):%H:%M}", "bad"
    elif _growth(bars) > 2 and group.count >= 4:
        tag, kind = "rising", "warn"
    return GroupRow(group, bars, tag, kind, group.key == key)


def _growth(bars: Sequence[int]) -> float:
    """Return the ratio of failures in the last quarter to an average earlier quarter."""
    quarter = max(1, len(bars) // 4)
    before = sum(bars[:-quarter]) / max(1, len(bars) / quarter - 1)
    return sum(bars[-quarter:]) / before if before else 0.0


def failure_bars(group: ErrorGroup, begin: int, end: int, number: int = BARS) -> list[int]:
    """Count the failures of a group in each part of a range: by counters, unless nodes still hold the newest counts."""
    failures = group.counted
    if sum(count for _, count in failures) < len(group.times):
        failures = [(moment, 1) for moment in group.times]
    width = max(1, (end - begin) // number + 1)
    counts = Counter[int]()
    for moment, many in failures:
        counts[min(number - 1, max(0, (to_us(moment) - begin) // width))] += many
    return [counts[each] for each in range(number)]


def group(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Read the chosen group: the common facts of its runs, their times, the newest trace."""
    chosen: GroupRow | None = data["chosen"]
    if chosen is None:
        return {"runs": []}
    runs = chosen.group.runs
    newest = chosen.group.newest
    common = in_common(runs, lambda run: function_of(view.app.runs, run)) if runs else []
    shared = [(name, text) for name, text in common if "***" not in text]  # a hidden secret is not a useful common fact
    return {
        "group": chosen.group,
        "runs": [run_row(view.app, run, view.now) for run in runs[:MOST_RUNS_SHOWN]],
        "shared": shared,
        "sentence": _sentence(runs, dict(shared)),
        "chart": hanging(
            _steps(view, chosen.group, data["begin"]),
            f"{chosen.group.count:,} failures over time",
            deploys_within(view.app.marks(view.times.local(data["begin"]), limit=10), data["begin"], view.now),
        ),
        "trace": trace_lines(newest.traceback, newest.type, newest.message),
        "whole": newest.traceback[: 64 * 1024],
        "nodes": len({run.node for run in runs if run.node}),
        "retryable": sum(run.status in RETRYABLE for run in runs),
        "match": _match(chosen.group, data["span"]),
        "job": dict(shared).get("job", ""),
    }


def _match(group: ErrorGroup, span: str) -> str:
    """Return the filter that best matches the runs of a group: by its type, and by its task if it has only one."""
    terms = {"status": ["failed"], "error": [group.type], "since": [span]}
    if len(group.tasks) == 1:
        terms["task"] = list(group.tasks)
    return text_of(terms)


def _sentence(runs: Sequence[RunView], shared: dict[str, str]) -> str:
    """Return one sentence about what nearly all of the runs have in common."""
    if not runs:
        return "No run of it is kept any more: the counters outlive them."
    if len(runs) < 2:
        return "One run failed like this."
    parts = []
    if "task" in shared:
        parts.append(f"only in {shared['task'].rpartition(':')[2]}")
    if "node" in shared:
        parts.append(f"only on {shared['node']}")
    if "message" in shared:
        parts.append("always with this message")
    parts += [f"always with {name.removeprefix('arg.')}={text}" for name, text in shared.items() if name[:4] == "arg."]
    if not parts:
        return f"{len(runs):,} runs failed like this; they share neither task, node nor arguments."
    said = ", ".join(parts[:4])
    return f"{said[:1].upper()}{said[1:]}."


def _steps(view: View, group: ErrorGroup, begin: int) -> list[Step]:
    counts = failure_bars(group, begin, view.now, CHART_BARS)
    width = (view.now - begin) / CHART_BARS
    steps = []
    for number, label in enumerate(clock_labels(view.times, begin, width, CHART_BARS)):
        moment, count = view.times.local(int(begin + number * width)), counts[number]
        steps.append(Step(0, count, f"{moment:%a %H:%M}\n{count} failed", *label))
    return steps


_REGIONS: Final = {"groups": None, "group": group}
PAGE = Page("/errors", "errors", "Errors", "work/errors.html", read, regions=_REGIONS)
GROUP_PAGE = Page("/errors/{key}", "errors", "Errors", "work/errors.html", read, regions=_REGIONS)
