"""Alerts about the health of jobs. Each alert is a run, and any node with its target sends it, on a separate thread."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from mainspring.core.insight.alerts import (
    ALERTS_GROUP,
    ALERTS_QUEUE,
    TOLD,
    Alert,
    AlertTarget,
    LastAlert,
    alert_of,
    alert_run,
    is_wanted,
)
from mainspring.core.insight.health import JobHealth, JobState
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.quantities import check_count
from mainspring.core.references import get_callable_name
from mainspring.core.run import Report, Result, Run
from mainspring.core.transitions import conclude
from mainspring.errors import ConfigurationError, is_own
from mainspring.executors.execution import failed
from mainspring.jobstores.base import RunQuery
from mainspring.node.settling import Settler
from mainspring.node.watch.webhook import Webhook

if TYPE_CHECKING:
    from mainspring.node.store_link import StoreLink

__all__ = ["AlertBook", "AlertSender", "AlertWatch"]

LAST_ALERTS_READ: Final = 1000
"""Read this many of the newest alerts to learn which states people already know."""
SEND_LEASE_SECONDS: Final = 120.0
"""Claim an alert for this long: nobody renews the lease, so it must outlast one try."""
LOOK_SECONDS: Final = 15.0
"""Look this often for alerts that other nodes have left."""

log = logging.getLogger("mainspring.alerts")


class AlertBook:
    """The targets of an app or a scheduler, by name."""

    def __init__(self, targets: str | Callable[..., Any] | Iterable[Any] = ()) -> None:
        self.targets: dict[str, AlertTarget] = {}
        given: Iterable[Any] = [targets] if isinstance(targets, str) or callable(targets) else targets
        for target in given:
            self.add(target)

    def add(
        self,
        target: Any,
        *,
        name: str | None = None,
        on: str | Iterable[str] = TOLD,
        jobs: str | Iterable[str] = "*",
        retries: int = 10,
        **webhook: Any,
    ) -> AlertTarget:
        """Add a target: a URL (with the options of `Webhook`), a `Webhook`, or a function that takes an `Alert`."""
        if isinstance(target, str):
            target = Webhook(target, **webhook)
        elif webhook:
            raise TypeError(f"{next(iter(webhook))!r} is an option of a webhook; give its URL")
        if not callable(target):
            raise TypeError(f"an alert goes to a URL, a Webhook or a function, not to {target!r}")
        called = name or (target.host if isinstance(target, Webhook) else get_callable_name(target))
        if called in self.targets:
            raise ConfigurationError(f"two targets of alerts are called {called!r}; give one a name=")
        found = AlertTarget(
            name=called,
            call=_waits_for(target),
            on=_states(on),
            jobs=(jobs,) if isinstance(jobs, str) else tuple(jobs),
            retries=check_count("retries of an alert", retries, least=0),
        )
        self.targets[called] = found
        return found


def _states(on: str | Iterable[str]) -> tuple[JobState, ...]:
    words = [on] if isinstance(on, str) else list(on)
    unknown = [word for word in words if word not in TOLD]
    if unknown or not words:
        raise ValueError(f"alerts are sent on 'late', 'down' and 'up', not on {unknown[0] if unknown else words!r}")
    return tuple(map(JobState, words))


def _waits_for(func: Callable[[Alert], Any]) -> Callable[[Alert], Any]:
    """Return a function that calls `func`, and waits for its result if `func` is a coroutine function."""
    if not inspect.iscoroutinefunction(func):
        return func

    def call(alert: Alert) -> Any:
        import asyncio  # imported late: not every program needs it

        return asyncio.run(func(alert))

    return call


class AlertWatch:
    """Makes an alert for each change of a job's health that people do not know yet."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._last: dict[tuple[str, str], LastAlert] = {}
        """The newest alerts by target and job, as far as this node knows."""

    def tell(self, judged: Iterable[tuple[Job, JobHealth]], now: int) -> None:
        """Store an alert for each target and each job whose state differs from that of the last alert."""
        link, targets = self._link, self._link.node.alerts.values()
        self._read()
        for job, health in judged:
            for target in targets:
                key = target.name, f"{job.id}@{job.incarnation}"
                last = self._last.get(key)
                if is_wanted(target, job.id, health.state, last):
                    run = alert_run(target, job, health, last, now, link.node.app_name)
                    link.store.add_runs([link.store.pack_run(run)])
                    self._last[key] = LastAlert(run.id, str(health.state))
                    link.wake_alerts()

    def _read(self) -> None:
        """Read the newest alerts: other nodes have made most of them."""
        newest: dict[tuple[str, str], LastAlert] = {}
        for run in self._link.store.find_runs(RunQuery(group=ALERTS_GROUP), limit=LAST_ALERTS_READ):
            try:
                target, owner, alert = alert_of(run)
            except (LookupError, TypeError, ValueError):  # its bytes cannot be read here
                continue
            newest.setdefault((target, owner), LastAlert(run.id, alert.health))
        self._last |= newest


class AlertSender:
    """The tick that sends alerts: it claims one, calls its target, and settles it like any other run."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._settler = Settler(link.store)

    def __call__(self) -> float:
        """Send an alert if one is due."""
        link, node = self._link, self._link.node
        for _ in self._settler.settle(link.now()):  # an earlier outcome that the store could not take
            pass
        if node.paused or node.draining:
            return LOOK_SECONDS
        token = node.new_token()
        claimed = link.store.claim([((ALERTS_QUEUE,), 1)], node=node.id, token=token, lease=SEND_LEASE_SECONDS)
        for run in claimed.runs:
            self._send(run)
        if claimed.runs:
            return 0.0
        wait = LOOK_SECONDS if claimed.next_at is None else (claimed.next_at - claimed.now) / SECOND
        return max(0.0, min(wait, LOOK_SECONDS))

    def _send(self, run: Run) -> None:
        link, node, started = self._link, self._link.node, self._link.node.elapsed()
        try:
            name, _, alert = alert_of(run)
            target = node.alerts.get(name)
            if target is None:  # leave the alert to a node that has the target
                report = Report(run, Result.ABSENT)
            else:
                value = target.call(alert)
                report = Report(run, Result.RETURNED, value, started_at=started, finished_at=node.elapsed())
        except BaseException as error:  # a user's function may even raise SystemExit
            if not is_own(error):
                raise
            log.warning("alert %s could not be sent: %s", run.name, error)
            report = failed(run, error, started, node.elapsed())
        link.date(report)
        now = link.now()
        self._settler.add(report, conclude(report, now, node.clock.random()), now)
        for settled in self._settler.settle(now):
            if settled.accepted:
                node.events.settled(settled.outcome, link.alias, settled.report)
