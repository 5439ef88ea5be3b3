"""A store of runs over `RunRecords`; the jobs are kept by a `SplitJobStore`, whose store of runs this is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from mainspring.codec import Codec
from mainspring.core.insight.metrics import Tally
from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want as ClaimWant
from mainspring.core.quantities import check_count
from mainspring.core.run import Run
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.jobstores.base import (
    CHANGES,
    ENDS,
    Answers,
    BrokenJob,
    Health,
    Hold,
    NodeInfo,
    RunQuery,
    RunStanding,
    Stats,
)
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.records.rows import (
    FINAL_VALUES,
    LATEST_INSTANT,
    MOST_ATTEMPTS,
    STATUS_VALUES,
    BeatRow,
    RunRow,
    SettleRow,
    run_damage,
)
from mainspring.jobstores.records.store import RecordStore
from mainspring.jobstores.run_records.claims import RunClaims
from mainspring.jobstores.run_records.records import RunRecord, RunRecords, Want
from mainspring.jobstores.run_records.service import RunService

__all__ = ["RunRecordStore"]


class _RecordVerbs(RunService, RunClaims):
    """All verbs about run records."""


class RunRecordStore(RecordStore):
    """The runs of a store, and all that goes with them: queues, gates, nodes, acts, counts. It holds no jobs.

    `keep_runs` finished runs without a retention of their own are kept.
    """

    def __init__(self, records: RunRecords, *, codec: Codec | None = None, keep_runs: int = 100_000) -> None:
        super().__init__(codec)
        self.records = records
        self.keep_runs = check_count("keep_runs", keep_runs, least=0)
        self.volatile = records.volatile  # type: ignore[misc]
        self.remote, self.tells_topics = records.remote, records.tells_topics
        self._verbs = _RecordVerbs(records)

    def start(self, scheduler: Any, alias: str) -> None:
        """Open the store."""
        self.records.start()
        super().start(scheduler, alias)

    def shutdown(self) -> None:
        """Close what `start` opened, and wake all waiters."""
        self.records.shutdown()

    def __repr__(self) -> str:
        return f"<RunRecordStore ({type(self.records).__name__})>"

    # -- runs --------------------------------------------------------------------------------------------------

    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        return self._verbs.add(rows)

    def _claim_rows(
        self, wants: Sequence[ClaimWant], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        return self._verbs.claim(wants, node, token, lease)

    def _extend_rows(self, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
        return self._verbs.extend(beats, lease)

    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        return self._verbs.settle(outcomes)

    def _lapsed_rows(self, limit: int, skip: int) -> list[RunRow]:
        want = Want(status=("running",), lease_until=self._verbs.now())
        return [each.row for each in self.records.find(want, "lease", limit, skip)]

    def _run_rows(self, run_ids: Sequence[str]) -> list[RunRow]:
        return [each.row for each in self.records.get(list(dict.fromkeys(run_ids))).values()] if run_ids else []

    def _find_run_rows(self, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
        want = replace(_want(query), older=None if after is None else (after.created_at, after.id))
        return [each.row for each in self.records.find(want, "newest", limit)]

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        found = self.records.standings(list(dict.fromkeys(run_ids))) if run_ids else {}
        return [found.get(run_id) for run_id in run_ids]

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        return self._verbs.cancel(run_ids)

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        return self._verbs.delete(run_ids)

    def prune(self, limit: int = 1000) -> int:
        return self._verbs.prune(self.keep_runs, limit)

    def _set_altered_aside(self, run_ids: Sequence[str], job_ids: Sequence[str]) -> int:
        """Set aside runs whose records were altered; the runs that come after them learn of it as of any end."""
        now = self._verbs.now()

        def break_(record: RunRecord) -> RunRecord | None:
            row, damage = record.row, run_damage(record.row)
            if damage is None:
                return None
            ends = row.status not in FINAL_VALUES
            row = replace(
                row,
                status=row.status if row.status in STATUS_VALUES else "broken",
                created_at=_instant(row.created_at, now),
                run_at=_instant(row.run_at, now),
                attempt=min(max(row.attempt, 0), MOST_ATTEMPTS),
                claimed_at=None,
            )
            broken = self._packer.broken_row(row, f"bad_data: {damage}", now)
            return replace(
                record, row=broken, expires_at=None, open=(), unreleased=ends and bool(record.successors), todo_at=now
            )

        written = self._verbs.change(run_ids, break_) if run_ids else {}
        self._verbs.finish(list(written.values()))
        if written:
            self.records.stir(ENDS)
        return len(written)

    # -- what people did, and what was counted -----------------------------------------------------------------

    def _add_act_rows(self, rows: Sequence[ActRow], oldest: str) -> None:
        self._verbs.add_acts(rows, oldest)

    def _find_act_rows(self, about: str | None, after: str | None, limit: int) -> list[ActRow]:
        return self._verbs.find_acts(about, after, limit)

    def tallies(
        self,
        new: Sequence[Tally] = (),
        *,
        kind: str = "all",
        name: str | None = None,
        level: int = 0,
        since: int = 0,
        until: int = 0,
    ) -> list[Tally]:
        if new:
            self._verbs.add_tallies(new)
        return self._verbs.find_tallies(kind, name, level, since, until)

    # -- service -----------------------------------------------------------------------------------------------

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        now = self._verbs.now()
        if node is not None:
            self._verbs.announce(node, ttl, now)
        return now

    def nodes(self) -> list[NodeInfo]:
        return self._verbs.nodes()

    def set_gate(self, name: str, allowed: int | None) -> None:
        self._verbs.set_gate(name, allowed)

    def stats(self, query: RunQuery | None = None) -> Stats:
        if query is not None:
            return Stats(matching=self.records.count(_want(query))[""])
        totals = {**dict.fromkeys(sorted(FINAL_VALUES), 0), **self.records.totals()}
        limits = self._verbs.limits()
        keys = {name: number for name, number in sorted(limits.items()) if not name.startswith(QUEUE_GATE)}
        return Stats(queues=self._verbs.queues(limits), totals=totals, limits=keys)

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        return self.records.wait(cursor, timeout, topic)

    def health(self) -> Health:
        return self.records.health()

    def shift_clock(self, seconds: float) -> None:
        self._verbs.shift += int(seconds * SECOND)
        self.records.stir(CHANGES)

    # -- jobs are kept elsewhere -------------------------------------------------------------------------------

    def _broken_jobs(self) -> list[BrokenJob]:
        return []

    def _elsewhere(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("this store holds runs only; SplitJobStore(jobs, runs) adds a store of jobs")

    _add_job_rows = _update_job_row = _job_rows = _due_rows = _fire_rows = _elsewhere
    remove_jobs = set_aside = _elsewhere


def _want(query: RunQuery) -> Want:
    status = tuple(each.value for each in query.status)
    if query.gate is not None and not status:
        status = ("blocked", "pending", "running")
    return Want(
        status=status,
        queues=None if query.queue is None else (query.queue,),
        group=query.group,
        job_id=query.job_id,
        after=query.after,
        gates=None if query.gate is None else (query.gate,),
    )


def _instant(at: int, otherwise: int) -> int:
    return at if -LATEST_INSTANT <= at <= LATEST_INSTANT else otherwise
