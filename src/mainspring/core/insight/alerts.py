"""Alerts tell people about changes in a job's health, once for all nodes together. Pure.

An alert is a run whose id derives from the previous alert. So nodes that see the same change make the same run, and the
store keeps one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

from mainspring.core.insight.health import JobHealth, JobState
from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.policy import Backoff, Policy
from mainspring.core.run import Call, Run

__all__ = ["ALERTS_GROUP", "ALERTS_QUEUE", "Alert", "AlertTarget", "LastAlert", "alert_of", "alert_run", "is_wanted"]

ALERTS_QUEUE: Final = ".mainspring-alerts"
"""The queue of alerts. Every node that has the targets serves it, even if it executes no other runs."""
ALERTS_GROUP: Final = "mainspring:alerts"
ALERT_TASK: Final = "mainspring:alert"
KEEP_SECONDS: Final = 90 * 86_400.0
"""Keep an alert this long: the next one of its job refers to it."""
TOLD: Final = (JobState.LATE, JobState.DOWN, JobState.UP)
"""The states that raise an alert."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a job's health. `id` is the same for each attempt to deliver it."""

    id: str
    app: str
    job: str
    name: str
    health: str
    before: str | None
    reason: str
    since: datetime | None
    run: str | None
    at: datetime

    @property
    def text(self) -> str:
        """The change in one sentence."""
        return f"{self.job} is {self.health}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return the alert as a webhook gets it, with times in ISO 8601."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return {"event": "job.health", "text": self.text, **plain}


class AlertTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A function to call with each alert, for some jobs and some states."""

    name: str
    call: Callable[[Alert], Any]
    on: tuple[JobState, ...] = TOLD
    jobs: tuple[str, ...] = ("*",)
    retries: int = 10


class LastAlert(NamedTuple):
    """The newest alert about a job to a target."""

    run_id: str
    health: str


def is_wanted(target: AlertTarget, job_id: str, state: JobState, last: LastAlert | None) -> bool:
    """Return True if a target should get an alert: for a first problem, a worse one, or the recovery."""
    if state not in target.on or not any(fnmatchcase(job_id, pattern) for pattern in target.jobs):
        return False
    if last is None:
        return state is not JobState.UP
    return str(state) != last.health and not (state is JobState.LATE and last.health == JobState.DOWN)


def alert_run(target: AlertTarget, job: Job, health: JobHealth, last: LastAlert | None, now: int, app: str) -> Run:
    """Return the run that sends an alert about a job's health to a target."""
    owner = f"{job.id}@{job.incarnation}"
    since = "" if health.state is JobState.UP else str(health.since)
    key = "\n".join((target.name, owner, str(health.state), since, "" if last is None else last.run_id))
    document = {
        "owner": owner,
        "app": app,
        "job": job.id,
        "name": job.name,
        "health": str(health.state),
        "before": None if last is None else last.health,
        "reason": health.why,
        "since": health.since,
        "run": health.run_id,
        "at": now,
    }
    return Run(
        id=f"alert-{hashlib.sha256(key.encode()).hexdigest()[:32]}",
        call=Call(ALERT_TASK, (target.name, document), {}, f"alert: {job.id} is {health.state}"),
        queue=ALERTS_QUEUE,
        group=ALERTS_GROUP,
        policy=Policy(retries=target.retries, backoff=Backoff(first=2.0, longest=900.0), retention=KEEP_SECONDS),
        created_at=now,
        run_at=now,
    )


def alert_of(run: Run) -> tuple[str, str, Alert]:
    """Read an alert's run: return its target, its job with the incarnation, and the alert."""
    target, told = run.call.args
    since = told["since"]
    alert = Alert(
        id=run.id,
        since=None if since is None else from_us(since),
        at=from_us(told["at"]),
        **{name: told[name] for name in ("app", "job", "name", "health", "before", "reason", "run")},
    )
    return target, told["owner"], alert
