"""A store of runs over `RunRecords`; a `SplitJobStore` combines it with a store of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from mainspring.codec import Codec
from mainspring.core.instants import SECOND
from mainspring.core.quantities import check_count
from mainspring.core.run import Run
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.jobstores.base import CHANGES, ENDS, BrokenJob, Health, RunQuery, RunStanding, Stats
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow, mended_row, run_damage
from mainspring.jobstores.run_records.claims import RunClaims
from mainspring.jobstores.run_records.records import RunRecord, RunRecords, Want
from mainspring.jobstores.run_records.service import RunService

__all__ = ["RunRecordStore"]


class RunRecordStore(RunService, RunClaims):
    """A store of runs with their queues, gates, nodes, acts and counts. It holds no jobs.

    `keep_runs` is the number of finished runs to keep; it does not count runs whose retention the user chose.
    """

    def __init__(self, records: RunRecords, *, codec: Codec | None = None, keep_runs: int = 100_000) -> None:
        super().__init__(records, codec)
        self.keep_runs = check_count("keep_runs", keep_runs, least=0)
        self.volatile = records.volatile  # type: ignore[misc]
        self.remote, self.tells_topics = records.remote, records.tells_topics

    def start(self, scheduler: Any, alias: str) -> None:
        """Open the store."""
        self.records.start()
        super().start(scheduler, alias)

    def shutdown(self) -> None:
        """Close the connections that `start` opened, and wake all waiters."""
        self.records.shutdown()

    def __repr__(self) -> str:
        return f"<RunRecordStore ({type(self.records).__name__})>"

    # -- runs --------------------------------------------------------------------------------------------------

    def _lapsed_rows(self, limit: int, skip: int) -> list[RunRow]:
        want = Want(status=("running",), lease_until=self._now())
        return [each.row for each in self.records.find(want, "lease", limit, skip)]

    def _run_rows(self, run_ids: Sequence[str]) -> list[RunRow]:
        return [each.row for each in self.records.get(list(dict.fromkeys(run_ids))).values()] if run_ids else []

    def _find_run_rows(self, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
        want = replace(_want(query), older=None if after is None else (after.created_at, after.id))
        return [each.row for each in self.records.find(want, "newest", limit)]

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        found = self.records.standings(list(dict.fromkeys(run_ids))) if run_ids else {}
        return [found.get(run_id) for run_id in run_ids]

    def _set_altered_aside(self, run_ids: Sequence[str], job_ids: Sequence[str]) -> int:
        """Set aside runs whose records were altered; this ends them, and their successors are judged by that end."""
        now = self._now()

        def break_(record: RunRecord) -> RunRecord | None:
            row, damage = record.row, run_damage(record.row)
            if damage is None:
                return None
            ends = row.status not in FINAL_VALUES
            broken = self._packer.broken_row(mended_row(row, now), f"bad_data: {damage}", now)
            return replace(
                record, row=broken, expires_at=None, open=(), unreleased=ends and bool(record.successors), todo_at=now
            )

        written = self._change(run_ids, break_)
        self._finish(list(written.values()))
        if written:
            self.records.stir(ENDS)
        return len(written)

    # -- service -----------------------------------------------------------------------------------------------

    def stats(self, query: RunQuery | None = None) -> Stats:
        if query is not None:
            return Stats(matching=self.records.count(_want(query))[""])
        totals = {**dict.fromkeys(sorted(FINAL_VALUES), 0), **self.records.totals()}
        limits = self._limits()
        keys = {name: number for name, number in sorted(limits.items()) if not name.startswith(QUEUE_GATE)}
        return Stats(queues=self._queues(limits), totals=totals, limits=keys)

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        return self.records.wait(cursor, timeout, topic)

    def health(self) -> Health:
        return self.records.health()

    def shift_clock(self, seconds: float) -> None:
        self._shift += int(seconds * SECOND)
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
