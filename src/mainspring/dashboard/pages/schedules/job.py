"""A job: its health and the reason, the durations of its runs, its next fires, its differences from the code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from statistics import median
from typing import Any, Final, NamedTuple

from markupsafe import Markup
from msgspec.structs import replace

from mainspring.core.insight.explanation import Fact
from mainspring.core.insight.run_texts import late_of
from mainspring.core.insight.wording import duration, several, took
from mainspring.core.instants import SECOND, to_us
from mainspring.core.job import Job
from mainspring.core.policy import Backoff, Policy
from mainspring.core.run import Run, Status
from mainspring.core.schedules.declaration import Difference
from mainspring.core.schedules.upcoming import preview
from mainspring.core.showing.run_view import RunView
from mainspring.dashboard.looks.charts import Deploy, Step, durations
from mainspring.dashboard.looks.times import brief_length
from mainspring.dashboard.looks.values import arguments_text, shown_value
from mainspring.dashboard.page import Page, View
from mainspring.dashboard.pages.schedules.actions import job_of
from mainspring.dashboard.schedule import differences_of, expression_of, job_board, words_of
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.excluding import ExcludingTrigger, plain_trigger

__all__ = ["PAGE", "policy_words"]

RUNS_DRAWN: Final = 60
ROWS_SHOWN: Final = 25
FOLD_FROM: Final = 3
"""Show this many successes in a row, and fold the others."""
FIRES_SHOWN: Final = 8
MORE_FIRES: Final = 20
STEP_RUNS: Final = 7
STEP_SHARE: Final = 0.2
"""A lasting change of the median of seven runs by more than this share gets a mark."""


class FiredRow(NamedTuple):
    """A run in the table with the seconds by which it started late, or a number of folded successes."""

    run: RunView | None
    folded: int = 0
    late: float | None = None


def read(view: View) -> dict[str, Any]:
    """Read the job and its newest runs."""
    job = job_of(view)
    board = job_board(view)
    runs = list(view.app.recent([job.id], RUNS_DRAWN).get(job.id, []))
    return {
        "title": job.id,
        "span": view.choice("range", ("runs", "year"), "runs"),
        "job": job,
        "health": board.healths[job.id],
        "runs": runs,
        "words": words_of(job.trigger),
        "expression": expression_of(job.trigger),
        "zone": str(job.trigger.timezone or view.app.timezone),
    }


def _records(runs: Sequence[RunView]) -> list[Run]:
    return [run.record for run in runs]


def explain(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Explain the job, without the facts that the page shows above."""
    job: Job = data["job"]
    told, drift = view.explain(job, job=job, recent=_records(data["runs"])), len(differences_of(view).get(job.id, []))
    facts = [fact for fact in told.facts if fact.kind in ("run", "node")]
    since = data["health"].since
    if since is not None and str(data["health"].state) != "up":
        facts.append(Fact("since", view.times.text(since)))
    for name, seconds in (("late after", job.late_after), ("down after", job.down_after)):
        if seconds is not None:
            facts.append(Fact(name, duration(int(seconds * SECOND))))
    if drift:
        facts.append(Fact("differs from the code in", several(drift, "field")))
    return {"told": replace(told, facts=tuple(facts))}


# -- how long it took ----------------------------------------------------------------------------------------------


def lengths(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Draw the durations of its last runs and their changes; or, from the counters, the weeks of a year."""
    if data["span"] == "year":
        return _year(view, data["job"].id)
    runs = [run for run in reversed(data["runs"]) if run.record.finished_at is not None]
    good = sorted(run.duration for run in runs if run.status is Status.SUCCEEDED and run.duration is not None)
    rows = [
        (
            view.times.text(run.record.fire_time or run.record.created_at),
            str(run.status),
            view.times.seconds(run.duration),
        )
        for run in reversed(runs)
    ]
    table = [("Fire", "Status", "Took"), *rows] if view.choice("table", ("", "lengths"), "") else []
    return {"chart": _chart(view, runs), "drawn": len(runs), "note": _percentiles(good), "cells": table}


def _year(view: View, job_id: str) -> dict[str, Any]:
    found = view.cached(
        f"year {job_id}", 30.0, lambda: view.app.metrics(timedelta(days=364), step=timedelta(days=7), job=job_id)
    )
    weeks = found.line(job_id)
    steps, rows, longest = [], [], 0.0
    for number, counts in enumerate(weeks):
        begin = view.times.local(found.since + number * found.step)
        half, most = counts.took.percentile(0.5), counts.took.percentile(0.95)
        bad = counts.of("failed") + counts.of("missed")
        good = 0.0 if half is None else half / SECOND
        longest = max(longest, good)
        words = "no run ended" if half is None or most is None else f"p50 {took(half)}, p95 {took(most)}"
        tip = f"week of {begin:%-d %b %Y}\n{words}\n{counts.of('succeeded'):,} succeeded, {bad:,} failed or missed"
        steps.append(Step(good, 0.0 if good else float(bad > 0), tip, f"{begin:%-d %b}" if number % 9 == 4 else ""))
        rows.append((f"{begin:%-d %b %Y}", f"{counts.of('succeeded'):,}", f"{bad:,}", view.times.span(half)))
    unit, scale = _unit(longest)
    table = [("Week of", "Succeeded", "Failed or missed", "p50"), *reversed(rows)]
    total = found.total(job_id)
    parts = [(name, total.took.percentile(part)) for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))]
    return {
        "chart": durations(steps, "How long its runs took in each week of a year (p50)", unit, scale),
        "drawn": total.took.number,
        "note": " · ".join(f"{name} {took(length)}" for name, length in parts if length is not None),
        "cells": table if view.choice("table", ("", "lengths"), "") else [],
    }


def _unit(longest: float) -> tuple[str, float]:
    """Return the unit of an axis, and its length in seconds."""
    return ("min", 60.0) if longest >= 120 else ("s", 1.0) if longest >= 1 else ("ms", 0.001)


def _percentiles(ordered: Sequence[float]) -> str:
    if not ordered:
        return ""
    places = {f"p{part}": ordered[-(-len(ordered) * part // 100) - 1] for part in (50, 95, 99)}
    return " · ".join(f"{name} {took(int(seconds * SECOND))}" for name, seconds in places.items())


def _chart(view: View, runs: Sequence[RunView]) -> Markup:
    steps, longest = [], 0.0
    day = ""
    times = [run.record.fire_time or run.record.created_at for run in runs]
    hourly = bool(times) and times[-1] - times[0] < 4 * 86_400 * SECOND  # labels with days alone would all be the same
    for number, run in enumerate(runs):
        at = run.record.fire_time or run.record.created_at
        moment = view.times.local(at)
        good = run.duration if run.status is Status.SUCCEEDED and run.duration is not None else 0.0
        longest = max(longest, good)
        word = str(run.status)
        how = f"{word} in {took(int((run.duration or 0) * SECOND))}" if run.duration is not None else word
        error = f": {run.errors[-1].type}" if run.errors and run.status is Status.FAILED else ""
        text, label = f"{moment:%a %H:%M}" if hourly else f"{moment:%-d %b}", ""
        if text != day and number % 12 == 6:
            label = day = text
        bad = float(run.status in (Status.FAILED, Status.BROKEN, Status.MISSED))
        steps.append(Step(good, bad, f"{moment:%a %-d %b %H:%M}\n{how}{error}", label, number % 24 == 6))
    unit, scale = _unit(longest)
    label = f"How long the last {len(runs)} runs took"
    change = _change(runs)
    marks = [] if change is None else [Deploy(change[0] / max(1, len(runs)), change[1])]
    return durations(steps, label, unit, scale, marks)


def _change(runs: Sequence[RunView]) -> tuple[int, str] | None:
    """Return where the median of seven runs changed by more than a fifth and stayed there, and by how much."""
    lengths = [(number, run.duration) for number, run in enumerate(runs) if run.status is Status.SUCCEEDED]
    known = [(number, length) for number, length in lengths if length is not None]
    best: tuple[float, int, float] | None = None
    for place in range(STEP_RUNS, len(known) - STEP_RUNS + 1):
        before = median(length for _, length in known[place - STEP_RUNS : place])
        after = median(length for _, length in known[place : place + STEP_RUNS])
        if before <= 0.05:  # noise of a loaded machine
            continue
        share = abs(after - before) / before
        if share > STEP_SHARE and (best is None or share > best[0]):
            best = share, known[place][0], after - before
    if best is None:
        return None
    return best[1], f"{took(int(abs(best[2]) * SECOND))} {'slower' if best[2] > 0 else 'quicker'} from here on"


# -- runs ----------------------------------------------------------------------------------------------------------


def runs(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List its last runs, with long rows of successes folded."""
    rows: list[FiredRow] = []
    same = 0
    for run in data["runs"]:
        same = same + 1 if run.status is Status.SUCCEEDED else 0
        if same <= FOLD_FROM:
            rows.append(FiredRow(run, late=late_of(run)))
        elif same == FOLD_FROM + 1:
            rows.append(FiredRow(None, 1))
        else:
            rows[-1] = FiredRow(None, rows[-1].folded + 1)
    return {"rows": rows[:ROWS_SHOWN], "number": len(data["runs"]), "most": RUNS_DRAWN}


# -- fires, differences, definition --------------------------------------------------------------------------------


def fires(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List its next fires, with the effects of clock changes."""
    job: Job = data["job"]
    many = view.choice("fires", ("", "more"), "")
    found = preview(job, view.now, MORE_FIRES if many else FIRES_SHOWN, view.times.zone)
    return {"fires": [(fire, to_us(fire.at)) for fire in found], "many": many, "paused": job.at is None}


def differences(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """List the differences between code and store, with the people who made them."""
    found = differences_of(view).get(data["job"].id, [])
    rows = [(each.field, _field(each.code, each), _field(each.store, each)) for each in found]
    changed = next((each for each in found if each.by), None)
    why = ""
    if changed is not None:
        acts = view.app.audit(kind="job", target=data["job"].id, limit=5)
        why = next((act.why for act in acts if act.by == changed.by and act.why), "")
    return {"rows": rows, "changed": changed, "changed_why": why}


def _field(value: Any, difference: Difference) -> str:
    if value is None:
        return "none"
    if isinstance(value, BaseTrigger):
        return value.describe()
    if difference.field in ("args", "kwargs"):
        args, kwargs = (value, {}) if difference.field == "args" else ((), value)
        return arguments_text(args, kwargs, None) or "…"
    if isinstance(value, int | float) and difference.field.endswith(("timeout", "_time", "_after", "retention")):
        return duration(int(value * SECOND))
    return str(shown_value(value, 120).striptags())


_ABOVE: Final = {
    "skip": "is recorded as missed",
    "queue": "waits until an earlier run has ended",
    "cancel_other": "cancels the oldest run and takes its place",
}
"""The effect of a fire above `max_instances`."""


def definition(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Describe the job's call and how its runs are executed."""
    job: Job = data["job"]
    task = view.app.tasks.get(job.call.task_name)
    call = f"{job.call.task_name}({arguments_text(job.args, job.kwargs, None if task is None else task.func)})"
    at_once = f"{job.max_instances}; a fire above it {_ABOVE[job.overlap]}"
    grace = "any" if job.misfire_grace_time is None else duration(int(job.misfire_grace_time * SECOND))
    pairs = [
        ("Calls", call),
        ("Priority", str(job.policy.priority)),
        *policy_words(job.policy),
        ("At once", at_once),
        ("After downtime", "overdue fires become one" if job.coalesce else "each overdue fire runs"),
        ("May be late by", grace),
        ("Declared", "in the code" if job.declared is not None else "no: it was added by hand"),
    ]
    return {"pairs": pairs, "python": _python(job)}


def policy_words(policy: Policy) -> list[tuple[str, str]]:
    """Return a policy in words, for a list of terms; the caller adds the priority."""
    backoff = policy.backoff
    if isinstance(backoff, Backoff):
        waits = f"{backoff.first:g} s \u00d7 {backoff.factor:g}, jitter {backoff.jitter:.0%}"
    elif isinstance(backoff, tuple):
        waits = ", ".join(f"{each:g} s" for each in backoff[:5])
    else:
        waits = str(backoff)
    return [
        ("Retries", f"{policy.retries}, back-off {waits}" if policy.retries else "none"),
        ("Time-out", "none" if policy.timeout is None else f"{brief_length(policy.timeout * SECOND)} per start"),
        ("Delivery", policy.delivery.replace("_", " ")),
    ]


def _python(job: Job) -> str:
    """Return Python code that would add the job, with secrets in its arguments hidden."""
    shown = arguments_text(job.args, job.kwargs, None)
    expression = expression_of(job.trigger)
    is_crontab = len(expression.split()) == 5 and "[" not in expression
    when = expression if is_crontab else plain_trigger(job.trigger)
    options: dict[str, Any] = {"queue": job.queue, "max_instances": job.max_instances, "coalesce": job.coalesce}
    if isinstance(job.trigger, ExcludingTrigger):
        options["exclude"] = job.trigger.exclude.texts()
    if job.overlap != "skip":
        options["overlap"] = job.overlap
    if job.misfire_grace_time is not None:
        options["misfire_grace_time"] = job.misfire_grace_time
    if job.policy.retries:
        options["retries"] = job.policy.retries
    if job.policy.timeout is not None:
        options["timeout"] = job.policy.timeout
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    code = f"app.add_job({job.call.task_name!r}, {when!r}, id={job.id!r}{more})"
    return code + (f"  # called with {shown}" if shown else "")


PAGE = Page(
    path="/jobs/{id:path}",
    nav="jobs",
    title="Job",
    template="schedules/job.html",
    read=read,
    regions={
        "top": None,
        "explain": explain,
        "lengths": lengths,
        "runs": runs,
        "fires": fires,
        "differences": differences,
        "definition": definition,
    },
)
