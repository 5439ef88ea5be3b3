"""The timeline: past and plan on one axis, by job, queue or node, with the clock changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from mainspring.core.insight.health import JobHealth, JobState, usual_duration
from mainspring.core.insight.run_texts import kind_of
from mainspring.core.insight.wording import listed, several, took
from mainspring.core.instants import SECOND, to_us
from mainspring.core.job import Job
from mainspring.core.run import Status
from mainspring.core.schedules import upcoming
from mainspring.core.showing.run_view import RunPage, RunView
from mainspring.dashboard.filtering import run_at_cursor
from mainspring.dashboard.looks.tracks import Bar, Load, Stretch, TrackContent, axis, load_track, track
from mainspring.dashboard.page import Page, View
from mainspring.dashboard.pages.schedules.stretches import chosen_stretch, zoom
from mainspring.dashboard.schedule import clock_band, job_board, load_ahead, words_of
from mainspring.triggers.clock_notes import clock_note

__all__ = ["PAGE"]

MOST_TRACKS: Final = 60
RUNS_PER_JOB: Final = 40
RUNS_READ: Final = 1000
"""The most runs to draw for a chosen range, or for all queues and nodes together."""
MADE_EARLIER_US: Final = 86_400 * SECOND
"""A run made this long before a range may still have run in it."""
LAST_ID: Final = "\U0010ffff"
"""A value that sorts after every run id."""
MOST_PLANNED: Final = 120
DENSE_PIXELS: Final = 11
PIXELS: Final = 950
"""The usual width of a track: fires that are only a few pixels apart become a band."""
LOAD_STEPS: Final = 72
MOST_NODES: Final = 1850
"""The most elements in all tracks together: a page with more updates slowly."""
_ORDER: Final = (JobState.DOWN, JobState.LATE, JobState.NEW, JobState.UP, JobState.PAUSED)
_SHAPES: Final = ("failed", "succeeded", "waiting")
"""The marks of a queue's or node's runs in a range, the worst first; `waiting` if there were none."""
_KINDS: Final = {"succeeded": "ok", "failed": "bad", "broken": "bad", "missed": "miss", "running": "run"}


class Track(NamedTuple):
    """One track: its name, its link, the mark in front of it, and the drawing."""

    name: str
    url: str
    shape: str
    chart: Markup


def read(view: View) -> dict[str, Any]:
    """Choose the time range, and read its runs and fires."""
    chosen = chosen_stretch(view)
    stretch = Stretch(chosen.since, chosen.until, view.times, clock_band(view, chosen.since, chosen.until))
    by = view.choice("by", ("job", "queue", "node"), "job")
    tracks = _by_job(view, stretch, chosen.chosen) if by == "job" else _by_other(view, stretch, by)
    drawn = _runs_within(view, stretch) if chosen.chosen or by != "job" else RunPage()
    return {
        "stretch": stretch,
        "chosen": chosen,
        "zoom": zoom(view, chosen),
        "span": chosen.span,
        "by": by,
        "tracks": _drawable(tracks),
        "number": len(tracks),
        "runs_drawn": len(drawn),
        "drawn_since": drawn[-1].record.created_at if drawn.more else None,
    }


def _drawable(tracks: Sequence[Track]) -> list[Track]:
    """Return the first tracks, up to the number of elements that a page can hold."""
    found: list[Track] = []
    nodes = 0
    for each in tracks[:MOST_TRACKS]:
        nodes += each.chart.count("<") - each.chart.count("</") + 9
        if found and nodes > MOST_NODES:
            break
        found.append(each)
    return found


# -- tracks by job ----------------------------------------------------------------------------------------------------


def _by_job(view: View, stretch: Stretch, chosen: bool) -> list[Track]:
    board = job_board(view)
    ordered = sorted(board.jobs.values(), key=lambda job: _rank(job, board.healths[job.id]))[:MOST_TRACKS]
    ids = [job.id for job in ordered]
    if chosen:  # the newest runs of a job may lie after the range
        recent: dict[str, list[RunView]] = {}
        for run in _runs_within(view, stretch):
            recent.setdefault(run.job_id or "", []).append(run)
    else:
        recent = view.cached(f"timeline runs {len(ids)}", 3.0, lambda: view.app.recent(ids, RUNS_PER_JOB))
    return [_job_track(view, stretch, job, board.healths[job.id], recent.get(job.id, [])) for job in ordered]


def _runs_within(view: View, stretch: Stretch) -> RunPage:
    """Return the newest runs made in a range, or up to a day before it: those may have run in it."""
    end = min(stretch.until, view.now)
    if end <= stretch.since - MADE_EARLIER_US:
        return RunPage()
    back = timedelta(microseconds=max(1, view.now - stretch.since + MADE_EARLIER_US))
    name = f"timeline {stretch.since} {stretch.until}"
    last = run_at_cursor(f"{end}.{LAST_ID}") if end < view.now else None
    return view.cached(name, 3.0, lambda: view.app.find(since=back, after=last, limit=RUNS_READ))


def _rank(job: Job, health: JobHealth) -> tuple[int, bool, int, str]:
    return _ORDER.index(health.state), job.at is None, job.at or 0, job.id


def _job_track(view: View, stretch: Stretch, job: Job, health: JobHealth, runs: Sequence[RunView]) -> Track:
    usual = usual_duration([run.record for run in runs]) or 0
    bars = [_run_bar(view, run) for run in runs if _within(stretch, run, view.now)]
    ahead = _ahead(job, stretch, view.now)
    dense = _is_dense(ahead, stretch)
    words = words_of(job.trigger)
    note, note_at = _clock_words(job, ahead)
    planned = [] if dense else [_plan_bar(view, job, at, usual) for at in ahead]
    truncated = len(runs) >= RUNS_PER_JOB and runs[-1].record.created_at > stretch.since
    content = TrackContent(
        bars=[*bars, *planned],
        past_band=f"{words}: only the newest {RUNS_PER_JOB} runs are drawn" if truncated else "",
        plan_band=words if dense else "",
        paused="paused" if job.at is None else "",
        note=note,
        note_at=note_at,
    )
    label = f"{job.id}: {len(bars)} runs before now, {len(ahead)} fires planned"
    return Track(job.id, view.of("job", job.id), str(health.state), track(stretch, content, label))


def _within(stretch: Stretch, run: RunView, now: int) -> bool:
    end = run.record.finished_at or now
    return end >= stretch.since and _begin(run) <= stretch.until


def _begin(run: RunView) -> int:
    record = run.record
    return record.started_at or record.fire_time or record.run_at


def _ahead(job: Job, stretch: Stretch, now: int) -> list[int]:
    if job.at is None:
        return []
    coming = (at for at in upcoming.next_fires(job, max(now, stretch.since)) if at > now)
    return list(islice(takewhile(lambda at: at < stretch.until, coming), MOST_PLANNED))


def _is_dense(ahead: Sequence[int], stretch: Stretch) -> bool:
    if len(ahead) < 3:
        return False
    gap = (ahead[-1] - ahead[0]) / (len(ahead) - 1)
    return gap / (stretch.until - stretch.since) * PIXELS < DENSE_PIXELS


def _clock_words(job: Job, ahead: Sequence[int]) -> tuple[str, int]:
    """Return the first fire that a clock change affects, in words."""
    for previous, at in zip([None, *ahead], ahead, strict=False):
        note = clock_note(job.trigger, at, previous)
        if note is not None and note.kind in ("gap", "once"):
            return note.text.partition(":")[0] if note.kind == "gap" else "comes twice, fires once", at
    return "", 0


def _run_bar(view: View, run: RunView) -> Bar:
    kind, begin = kind_of(run, view.now), _begin(run)
    end = run.record.finished_at or view.now
    words = f"{view.times.local(begin):%a %H:%M:%S}\n{kind}, {took(max(0, end - begin))}"
    return Bar(_KINDS.get(kind, "idle"), begin, end, words, view.of("run", run.id))


def _plan_bar(view: View, job: Job, at: int, usual: int) -> Bar:
    usually = f"\nusually {took(usual)}" if usual else ""
    return Bar("plan", at, at + usual, f"{view.times.local(at):%a %H:%M %Z}{usually}")


# -- tracks by queue or node ------------------------------------------------------------------------------------------


def _by_other(view: View, stretch: Stretch, by: str) -> list[Track]:
    runs = [run for run in _runs_within(view, stretch) if _within(stretch, run, view.now)]
    groups: dict[str, list[RunView]] = {}
    for run in runs:
        name = run.queue if by == "queue" else run.node or ""
        if name and run.record.started_at is not None:
            groups.setdefault(name, []).append(run)
    planned, dense = _planned_by_queue(view, stretch) if by == "queue" else ({}, {})
    names = sorted({*groups, *planned, *dense})
    found = []
    for name in names:
        mine = groups.get(name, [])
        bars = [*(_run_bar(view, run) for run in mine), *planned.get(name, [])]
        content = TrackContent(bars=bars, plan_band=dense.get(name, ""))
        bad = any(run.status in (Status.FAILED, Status.BROKEN) for run in mine)
        label = f"{name}: {len(mine)} runs"
        shape = "failed" if bad else "succeeded" if mine else "waiting"
        found.append(Track(name, view.of(by, name), shape, track(stretch, content, label)))
    return sorted(found, key=lambda each: _SHAPES.index(each.shape))


def _planned_by_queue(view: View, stretch: Stretch) -> tuple[dict[str, list[Bar]], dict[str, str]]:
    """Return the planned fires of each queue, with a text for fires that are too dense to draw."""
    planned: dict[str, list[Bar]] = {}
    dense: dict[str, str] = {}
    for job in job_board(view).jobs.values():
        ahead = _ahead(job, stretch, view.now)
        if _is_dense(ahead, stretch) or len(ahead) == MOST_PLANNED:
            dense[job.queue] = words_of(job.trigger) if job.queue not in dense else "many fires"
        elif ahead:
            planned.setdefault(job.queue, []).extend(_plan_bar(view, job, at, 0) for at in ahead)
    return planned, dense


# -- above the tracks -------------------------------------------------------------------------------------------------


def state(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Report unusual facts of the range: no node fires, the clock changes, or where the load peaks."""
    stretch: Stretch = data["stretch"]
    begin = max(view.now, stretch.since)
    step = max(60 * SECOND, (stretch.until - begin) // LOAD_STEPS)
    steps = load_ahead(view, begin // step * step, stretch.until, step) if begin < stretch.until else []  # shared
    peak = max(steps, key=lambda each: each.busy, default=None)
    fires = sum(each.fires for each in steps)
    slots = sum(node.slots for node in view.nodes if node.state == "running")
    facts = [several(fires, "fire is", "fires are") + " planned"] if fires else []
    words = ""
    if peak is not None and peak.busy > 0:
        at = view.times.local(to_us(peak.at))
        words = f"peak {peak.busy:.2g}{f' of {slots}' if slots else ''}"
        facts.append(f"busiest about {at:%a %H:%M}, with {peak.busy:.2g}{f' of {slots}' if slots else ''} slots")
    touched = _touched(view, stretch) if stretch.band is not None else []
    fired = not fires or any(node.state == "running" for node in view.nodes)
    return {
        "sentence": _sentence(view, stretch, touched, fires, fired),
        "shape": "down" if not fired else "late" if touched else "up",
        "facts": facts,
        "axis": axis(stretch),
        "load": load_track(
            stretch,
            _was_busy(view, stretch),
            [Load(max(to_us(each.at), begin), to_us(each.at) + step, each.busy) for each in steps],
            words,
        ),
    }


def _was_busy(view: View, stretch: Stretch) -> list[Load]:
    """Return the busy slots in each past step, from the durations of the runs that ended in it."""
    end = min(stretch.until, view.now)
    if end <= stretch.since or not view.keeps_history:
        return []
    since, until = view.times.local(stretch.since), view.times.local(end)
    step = max(timedelta(minutes=1), (until - since) / (LOAD_STEPS // 3))
    name = f"timeline busy {stretch.since} {stretch.until}"
    found = view.cached(name, 5.0, lambda: view.app.metrics(since, until, step))
    loads: list[Load] = []
    for number, counts in enumerate(found.whole):
        begin = found.since + number * found.step
        last = min(begin + found.step, end)
        if last > stretch.since:
            loads.append(Load(max(begin, stretch.since), last, counts.took.total / found.step))
    return loads


def _touched(view: View, stretch: Stretch) -> list[str]:
    jobs = job_board(view).jobs.values()
    return [job.id for job in jobs if _clock_words(job, _ahead(job, stretch, view.now))[0]]


def _sentence(view: View, stretch: Stretch, touched: Sequence[str], fires: int, fired: bool) -> str:
    nobody = "" if fired else "No living node fires jobs. "
    if stretch.band is not None:
        at = stretch.since + int(stretch.band.line * (stretch.until - stretch.since))
        words = stretch.band.text.partition(":")[0]
        begin = f"{nobody}{words[:1].upper()}{words[1:]} on {view.times.local(at):%A}."
        if not touched:
            return f"{begin} No fire here falls into it."
        return f"{begin} It touches {listed(touched, 3)}."
    first = min((job.at for job in job_board(view).jobs.values() if job.at is not None), default=None)
    if first is None or not fires:
        return "Nothing is planned in this stretch."
    return f"{nobody or 'Nothing odd lies ahead. '}The next fire is at {view.times.text(max(first, view.now))}."


PAGE = Page(
    path="/timeline",
    nav="timeline",
    title="Timeline",
    template="schedules/timeline.html",
    read=read,
    regions={"state": state, "tracks": state},
    phone="range=6h",
)
