"""The group of job verbs, with the helpers that choose jobs and show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mainspring.cli.common.failing import USAGE, CommandFailed, command
from mainspring.cli.common.verbs import VerbGroup
from mainspring.cli.common.visible import visible
from mainspring.core.insight.wording import duration
from mainspring.core.instants import from_us
from mainspring.core.showing.redaction import masked_text
from mainspring.errors import JobLookupError

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.job import Job

__all__ = ["choose", "jobs", "next_time", "only", "queue_of", "read_jobs", "shown_call"]


@click.group(cls=VerbGroup)
def jobs() -> None:
    """Look at jobs and when they fire; add, edit, pause, resume or remove them, run them now.

    \b
    Example:
      mainspring jobs list --app shop:app
    """


def read_jobs(app: Mainspring) -> list[Job]:
    """Return all jobs by next run time, paused ones last; only name those that this process cannot read.

    Unlike `app.jobs()`, set no job aside: a command with the wrong key must not stop other people's schedules.
    """
    found, unreadable = app.store.examine_jobs()
    for job_id, reason in sorted(unreadable.items()):
        click.echo(f"{visible(job_id)} cannot be read here: {visible(reason)}", err=True)
    return sorted(found, key=lambda job: (job.at is None, job.at or 0, job.id))


def choose(app: Mainspring, job_ids: Sequence[str]) -> list[Job]:
    """Return the jobs with these ids; an id may end with a star, or omit its module if that is unambiguous."""
    by_id = {job.id: job for job in read_jobs(app)}
    found: dict[str, Job] = {}
    for job_id in job_ids:
        if job_id not in by_id and job_id.endswith("*"):
            matching = {name: job for name, job in by_id.items() if name.startswith(job_id[:-1])}
        else:
            matching = {job_id: by_id[job_id]} if job_id in by_id else _without_module(by_id, job_id)
        if not matching and any(f":{name}".endswith(f":{job_id}") for name in app.jobs.declared_ids):
            raise CommandFailed(
                f"the code declares the schedule {job_id!r}, and the store lacks it: the app adds it when it starts",
                command("jobs diff"),
            )
        if not matching:
            raise CommandFailed(str(JobLookupError(job_id, tuple(by_id))), command("jobs list"))
        found |= matching
    return list(found.values())


def _without_module(by_id: Mapping[str, Job], job_id: str) -> dict[str, Job]:
    found = {name: job for name, job in by_id.items() if name.endswith(f":{job_id}")}
    return found if len(found) == 1 else {}


def next_time(app: Mainspring, job: Job, now: int) -> tuple[str, str]:
    """Return when a job is due next, and how soon that is."""
    if job.at is None:
        return "paused", ""
    when = f"in {duration(job.at - now)}" if job.at > now else f"overdue by {duration(now - job.at)}"
    return f"{from_us(job.at).astimezone(app.timezone):%Y-%m-%d %H:%M:%S %Z}", when


def queue_of(job: Job) -> str:
    """Return the queue of a job; empty if its runs go to a scheduler's executor."""
    return job.queue if job.executor == "queue" else ""


def shown_call(app: Mainspring, job: Job) -> str:
    """Return the call of a job for display: its name and arguments, with secrets masked."""
    arguments = masked_text(job.args, job.kwargs, app.tasks.function(job.call.task_name))
    return f"{job.name or job.call.task_name}({arguments})"


def only(app: Mainspring, job_id: str) -> Job:
    """Return the only job that matches an id; fail if there are several."""
    found = choose(app, [job_id])
    if len(found) > 1:
        raise CommandFailed(f"{job_id!r} means {len(found)} jobs; name one of them", command("jobs list"), USAGE)
    return found[0]
