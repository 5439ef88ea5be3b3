"""The story of a run: each start and each wait between them, with its length and its cause. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import Final

import msgspec

from mainspring.core.insight.runs import place_of_run
from mainspring.core.insight.wording import brief, several, took
from mainspring.core.instants import from_us
from mainspring.core.run import FINAL, Run, Start, Status

__all__ = ["Episode", "story_of"]

_ENDINGS: Final = {
    "succeeded": "succeeded",
    "retry": "asked to be tried again",
    "crashed": "its process died",
    "interrupted": "its node was stopped",
    "lost": "its node fell silent, and the run was taken from it",
    "cancelled": "cancelled",
    "missed": "missed",
    "broken": "set aside",
}


class Episode(msgspec.Struct, frozen=True):
    """A period in a run's life; `kind` is `wait`, `start`, `gap` (starts that the record no longer keeps) or `end`."""

    kind: str
    since: datetime
    until: datetime | None
    text: str
    number: int | None = None
    node: str | None = None

    @property
    def seconds(self) -> float | None:
        """How long it lasted; None if it goes on."""
        return None if self.until is None else (self.until - self.since).total_seconds()


class _Teller:
    """Builder of the story of one run."""

    def __init__(self, run: Run, now: int, zone: tzinfo) -> None:
        self.run, self.now, self.zone = run, now, zone

    def wait(self, since: int, until: int | None, text: str) -> Iterator[Episode]:
        """Yield a wait, unless its length is zero; a wait without an end goes on."""
        if until is None or until > since:
            yield self._episode("wait", since, until, f"{text}{_length(since, until, self.now)}")

    def _episode(
        self, kind: str, since: int, until: int | None, text: str, number: int | None = None, node: str | None = None
    ) -> Episode:
        end = None if until is None else from_us(until, self.zone)
        return Episode(kind, from_us(since, self.zone), end, text, number, node)

    def told(self) -> Iterator[Episode]:
        """Yield the waits and the starts in their order."""
        run, number, ready = self.run, 0, self.run.created_at
        place = place_of_run(run.queue)
        if not run.earlier_starts and run.run_at > ready:  # each later wait has another time
            later = run.run_at <= self.now or run.status in FINAL
            why = f"waited for {several(len(run.after), 'run')}" if run.after else "set for later"
            yield from self.wait(ready, run.run_at if later else None, why)
            ready = run.run_at
        for start in run.starts:
            began = start.started_at if start.claimed_at is None else start.claimed_at
            assert began is not None
            if start.number > number + 1:
                text = f"{several(start.number - number - 1, 'start')} of which nothing is kept"
                yield self._episode("gap", ready, began, text)
            else:
                yield from self.wait(ready, began, f"waited in {place}")
            yield self._start(start)
            number, ready = start.number, began if start.ended_at is None else start.ended_at
            if start.run_at is not None:
                over = start.run_at <= self.now or start is not run.starts[-1]
                why = "was over until somebody sent it back" if start.how in FINAL else "backs off"
                yield from self.wait(ready, start.run_at if over else None, why)
                ready = max(ready, start.run_at)
        if run.status is Status.BLOCKED:
            yield from self.wait(ready, None, f"waits for {several(max(1, run.waits), 'run')}")
        elif run.status is Status.PENDING and ready <= self.now:
            yield from self.wait(ready, None, f"waits in {place}")
        elif run.status in FINAL and (not run.starts or run.starts[-1].how not in FINAL):
            end = ready if run.finished_at is None else run.finished_at
            yield from self.wait(ready, end, f"waited in {place}")
            reason = f": {brief(run.reason)}" if run.reason else ""
            yield self._episode("end", end, end, f"{run.status}{reason}")

    def _start(self, start: Start) -> Episode:
        began = start.started_at if start.started_at is not None else start.claimed_at
        assert began is not None
        if start.how is None:
            how = "runs"
        elif start.how in ("raised", "failed"):
            error = next((each for each in self.run.errors if each.attempt == start.number), None)
            how = "raised" if error is None else f"raised {error.type.rpartition('.')[2]}: {brief(error.message)}"
        else:
            how = _ENDINGS.get(start.how, start.how)
        length = _length(began, start.ended_at, self.now)
        text = f"start {start.number}{f' on {start.node}' if start.node else ''}: {how}{length}"
        return self._episode("start", began, start.ended_at, text, start.number, start.node)


def story_of(run: Run, now: int, zone: tzinfo) -> tuple[Episode, ...]:
    """Return the episodes of a run, in order."""
    return tuple(_Teller(run, now, zone).told())


def _length(since: int, until: int | None, now: int) -> str:
    return f", {took(until - since)}" if until is not None else f", {took(now - since)} so far" if now > since else ""
