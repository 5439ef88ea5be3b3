"""The actions on a job: run now, pause, resume, skip the next fire, backfill, adopt the code's values, remove."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from mainspring.core.insight.wording import duration, several
from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.quantities import read_seconds
from mainspring.dashboard.page import Action, BadParameter, Deed, Question, View, there
from mainspring.dashboard.roles import Role
from mainspring.dashboard.schedule import job_board

__all__ = ["ACTIONS", "job_of", "read_past_moment"]


def job_of(view: View) -> Job:
    """Return the job that the address names."""
    job_id = view.params["id"]
    return there(job_board(view).jobs.get(job_id), "job", job_id)


def _due(view: View, job: Job) -> str:
    if job.at is None:
        return "It is paused."
    if job.at <= view.now:
        return "Its next fire is due now."
    return f"Its next fire is {view.times.text(job.at)}, in {duration(job.at - view.now)}."


def ask_run(view: View) -> Question:
    """Ask before running a job in addition to its schedule."""
    job = job_of(view)
    return Question(f"Run “{job.id}” now?", f"It runs once, besides its schedule. {_due(view, job)}", "Run it now")


def run_now(view: View, form: Mapping[str, str]) -> Deed:
    """Run a job in addition to its schedule."""
    job = job_of(view)
    handle = view.app.run_now(job.id)
    return Deed(f"{job.id} is on its way", link=view.of("run", handle.id))


def ask_pause(view: View) -> Question:
    """Ask before pausing a job."""
    job = job_of(view)
    text = f"It does not fire until it is resumed; fires that pass meanwhile are left out. {_due(view, job)}"
    return Question(f"Pause “{job.id}”?", text, "Pause it")


def pause(view: View, form: Mapping[str, str]) -> Deed:
    """Pause a job."""
    job = job_of(view)
    view.app.pause_job(job.id)
    return Deed(f"{job.id} is paused", view.of("job", job.id), view.act("job.resume", id=job.id).url)


def ask_resume(view: View) -> Question:
    """Ask before resuming a job."""
    job = job_of(view)
    return Question(f"Resume “{job.id}”?", "It fires again from now on, by its schedule.", "Resume it")


def resume(view: View, form: Mapping[str, str]) -> Deed:
    """Resume a job."""
    job = job_of(view)
    changed = view.app.resume_job(job.id)
    if changed is None:
        return Deed(f"{job.id} had no fire left and is gone", go="/jobs")
    undo = view.act("job.pause", id=job.id).url
    return Deed(f"{job.id} fires again", view.of("job", job.id), undo)


def ask_skip(view: View) -> Question:
    """Ask before skipping the next fire of a job."""
    job = job_of(view)
    return Question(f"Skip the next fire of “{job.id}”?", f"{_due(view, job)} It is left out.", "Skip it")


def skip(view: View, form: Mapping[str, str]) -> Deed:
    """Skip the next fire of a job; the toast offers to undo it."""
    job = job_of(view)
    changed = view.app.skip_next(job.id)
    left_out = f"The fire of {view.times.text(job.at)} is left out" if job.at is not None else "One fire is left out"
    then = "" if changed.at is None else f"; the next is {view.times.text(changed.at)}"
    undo = f"{view.act('job.unskip', id=job.id).url}?at={job.at}" if job.at is not None else ""
    return Deed(left_out + then, view.of("job", job.id), undo)


def ask_unskip(view: View) -> Question:
    """Ask before restoring a skipped fire."""
    job = job_of(view)
    return Question(f"Bring the fire of “{job.id}” back?", "The fire that was left out is due again.", "Bring it back")


def unskip(view: View, form: Mapping[str, str]) -> Deed:
    """Set the next fire of a job back to the skipped one."""
    job = job_of(view)
    at = int(view.text("at", "0", 20))
    if at <= view.now:
        raise BadParameter("that fire is past")
    view.app.modify_job(job.id, next_run_time=from_us(at).astimezone(view.times.zone))
    return Deed(f"{job.id} fires at {view.times.text(at)} again", view.of("job", job.id))


def ask_adopt(view: View) -> Question:
    """Ask before resetting a job to the values in the code."""
    job = job_of(view)
    text = "What was changed by hand is given up: its fields become those of the code. A paused job stays paused."
    return Question(f"Take the code's values for “{job.id}”?", text, "Take the code's")


def adopt(view: View, form: Mapping[str, str]) -> Deed:
    """Reset a job to the values in the code."""
    job = job_of(view)
    view.app.adopt(job.id, "code")
    return Deed(f"{job.id} is as the code says", view.of("job", job.id))


def ask_remove(view: View) -> Question:
    """Ask before removing a job."""
    job = job_of(view)
    declared = " The code declares it, so the next start adds it again." if job.declared is not None else ""
    text = f"It never fires again. {_due(view, job)}{declared} This cannot be undone."
    return Question(
        f"Remove “{job.id}”?", text, "Remove it", job.id, template="fields/remove.html", fields={}, bad=True
    )


def remove(view: View, form: Mapping[str, str]) -> Deed:
    """Remove a job, and cancel its unfinished runs if the box was ticked."""
    job = job_of(view)
    view.app.remove_job(job.id, cancel_runs=form.get("cancel_runs") == "yes")
    return Deed(f"{job.id} is removed", go="/jobs")


def read_past_moment(view: View, text: str, name: str) -> datetime:
    """Read a past moment: `2d`, the last `14:00`, or a date."""
    text = text.strip()
    here = view.times.local(view.now)
    length = read_seconds(text.removesuffix("ago").strip())
    if length is not None:
        return view.times.local(view.now - int(length * 1_000_000))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadParameter(
            f"{name}: {text!r} is not a time; write 2d ago, or 2026-03-01, or 2026-03-01T14:00"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=here.tzinfo)


def ask_backfill(view: View) -> Question:
    """Ask for the time range to fill, and show the trial."""
    job = job_of(view)
    since, until = view.text("since", "1d ago", 60), view.text("until", "", 60)
    found, problem = None, ""
    try:
        end = None if not until else read_past_moment(view, until, "until")
        found = view.app.backfill(job.id, read_past_moment(view, since, "since"), end, trial=True)
    except ValueError as error:
        problem = str(error)
    fires = [] if found is None else found.fires
    text = "Past fires that have no run are run now, one after another, oldest first."
    known = 0 if found is None else len(found.known)
    note = problem or f"{several(len(fires), 'fire')} would run; {several(known, 'fire')} had a run."
    if not fires and not problem:
        note = f"There is nothing to run: {several(known, 'fire')} had a run." if known else "No fire was due then."
    fields = {"since": since, "until": until, "fires": fires[:20], "more": max(0, len(fires) - 20)}
    return Question(
        f"Backfill “{job.id}”?", text, f"Run {several(len(fires), 'fire')}" if fires else "", note=note,
        template="fields/backfill.html", fields=fields,
    )  # fmt: skip


def backfill(view: View, form: Mapping[str, str]) -> Deed:
    """Run the past fires of a job that have no run."""
    job = job_of(view)
    until = form.get("until", "").strip()
    end = None if not until else read_past_moment(view, until, "until")
    done = view.app.backfill(job.id, read_past_moment(view, form.get("since", ""), "since"), end)
    if done.run is None:
        return Deed(f"There is nothing to run: {several(len(done.known), 'fire')} had a run")
    return Deed(f"{several(len(done.fires), 'fire')} of {job.id} run", link=view.of("run", done.run.id))


ACTIONS = (
    Action("job.run", "/jobs/{id:path}/run", run_now, ask_run, weight="undo"),
    Action("job.pause", "/jobs/{id:path}/pause", pause, ask_pause, weight="undo"),
    Action("job.resume", "/jobs/{id:path}/resume", resume, ask_resume, weight="undo"),
    Action("job.skip", "/jobs/{id:path}/skip", skip, ask_skip, weight="undo"),
    Action("job.unskip", "/jobs/{id:path}/unskip", unskip, ask_unskip, weight="undo"),
    Action("job.adopt", "/jobs/{id:path}/adopt", adopt, ask_adopt),
    Action("job.backfill", "/jobs/{id:path}/backfill", backfill, ask_backfill),
    Action("job.remove", "/jobs/{id:path}/remove", remove, ask_remove, Role.OPERATE, weight="type"),
)
