"""The data of the frame around every page: numbers in the sidebar, problems that need a person, the store's address."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from mainspring.core.insight.explanation import Explanation
from mainspring.core.showing.redaction import without_password
from mainspring.core.store_urls import store_scheme
from mainspring.dashboard.memo import remembered
from mainspring.locks import free_in_children

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Summary", "SummaryReader"]

FRESH_SECONDS: Final = 2.0
"""The shortest time between two reads of the summary, however many pages are watched."""
COST_FACTOR: Final = 20.0
"""The same as a multiple of the time that a read takes: with many jobs it is expensive."""
HEALTH_SECONDS: Final = 60.0
"""The seconds between two questions to the store about its durability."""
ERROR_SECONDS: Final = 30.0
"""The seconds between two counts of the groups of errors."""
HEALS_ITSELF: Final = ("late",)
"""The states that need no person."""


class Summary(NamedTuple):
    """The numbers of the sidebar, and the problems that need a person."""

    explanation: Explanation
    needs: int
    """The number of problems that need a person."""
    counts: dict[str, int]
    alerts: dict[str, tuple[str, str]]
    """By page: the mark and the text of its problem."""
    store: str

    @property
    def broken_jobs(self) -> dict[str, str]:
        """The jobs that were set aside, with the reasons."""
        parts = [part for part in self.explanation.parts if (part.kind, part.state) == ("job", "broken")]
        return {job_id: part.sentence for part in parts for job_id in part.ids or (part.id,)}


NO_SUMMARY: Final = Summary(Explanation(kind="system", id="", state="unknown", sentence=""), 0, {}, {}, "")


class SummaryReader:
    """A reader of the app's summary, which it keeps for a moment."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._lock = free_in_children(threading.Lock())
        self._summary: Summary | None = None
        self._until = 0.0

    def read(self) -> Summary:
        """Return the summary, at most FRESH_SECONDS old, or older if reading it is expensive."""
        with self._lock:
            started = time.monotonic()
            if self._summary is None or started >= self._until:
                self._summary = self._read()
                took = time.monotonic() - started
                self._until = time.monotonic() + max(FRESH_SECONDS, COST_FACTOR * took)
            return self._summary

    def forget(self) -> None:
        """Read the summary again next time, because a person has acted."""
        self._until = 0.0

    def _read(self) -> Summary:
        told = self._app.explain()
        counts = {fact.name: int(fact.value.replace(",", "")) for fact in told.facts}
        alerts: dict[str, tuple[str, str]] = {}
        for kind, page in (("job", "jobs"), ("queue", "queues"), ("node", "nodes"), ("run", "runs")):
            wrong = [part for part in told.parts if part.kind == kind]
            if wrong:
                number = sum(max(1, len(part.ids)) for part in wrong if part.state == wrong[0].state)
                alerts[page] = wrong[0].state, f"{number} {wrong[0].state}"
        app = self._app
        counts["errors"] = remembered(app, "error groups", ERROR_SECONDS, lambda: len(app.errors().groups))
        going = remembered(
            app, "going flows", ERROR_SECONDS, lambda: sum(each.goes_on for each in app.flow_graphs()[0])
        )
        if going:
            counts["flows"] = going
        store = remembered(app, "store in words", HEALTH_SECONDS, self._store_words)
        needs = sum(part.state not in HEALS_ITSELF for part in told.parts)
        return Summary(told, needs, counts, alerts, store)

    def _store_words(self) -> str:
        health, url = self._app.store.health(), self._app.url
        kind = _KINDS.get(store_scheme(url), store_scheme(url)) if isinstance(url, str) else type(url).__name__
        version = health.version.removeprefix(kind).strip()
        return " · ".join(part for part in (f"{kind} {version}".strip(), health.level) if part)


_KINDS: Final = {
    "sqlite": "SQLite",
    "postgresql": "PostgreSQL",
    "mysql": "MariaDB",
    "mariadb": "MariaDB",
    "redis": "Redis",
    "rediss": "Redis",
    "memory": "Memory",
}


def store_address(app: Mainspring) -> str:
    """Return the store's address, without its password."""
    return without_password(app.url) if isinstance(app.url, str) else repr(app.url)
