"""Jobs kept as records of a store that holds nothing else: every write is one compare-and-set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import BrokenJob
from mainspring.jobstores.records.rows import JobRow
from mainspring.jobstores.split.records import (
    JobRecords,
    OpenFiring,
    RecordState,
    StoredJob,
    added,
    insist,
    job_key,
    kept_in,
    new_version,
    record_of,
    refuse_twins,
)
from mainspring.jobstores.split.runs import RunsElsewhere

__all__ = ["JobsInRecords"]


class JobsInRecords(RunsElsewhere):
    """The jobs of a split store."""

    jobs: JobRecords

    # -- jobs: read --------------------------------------------------------------------------------------------

    def _read(self, job_ids: Iterable[str]) -> list[StoredJob | None]:
        records = self.jobs.get([job_key(job_id) for job_id in job_ids])
        return [None if record is None else kept_in(record) for record in records]

    def _present(self, job_id: str) -> StoredJob:
        kept = self._read([job_id])[0]
        if kept is None or kept.state.gone:
            raise JobLookupError(job_id)
        return kept

    def _everything(self, kind: str) -> list[StoredJob]:
        return [kept_in(record) for record in self.jobs.all() if record.key.startswith(kind)]

    def _job_rows(self, job_ids: Sequence[str] | None) -> list[JobRow]:
        found = self._everything("job:") if job_ids is None else self._read(dict.fromkeys(job_ids))
        rows = [kept.row for kept in found if kept is not None and not kept.state.gone]
        return sorted(rows, key=lambda row: (row.at is None, row.at or 0))

    def _next_at(self) -> int | None:
        """Return the earliest next run time of all jobs."""
        limit = 1
        while True:
            records, more = self.jobs.due(2**62, limit)
            kept = [kept_in(record) for record in records]
            times = [each.state.at for each in kept if each.state.at is not None and not each.state.gone]
            # An open firing may sort a record before jobs that are due sooner; all other records are in order.
            if more is None or any(each.state.fired is None for each in kept):
                return min(times, default=None)
            limit *= 10

    # -- jobs: write -------------------------------------------------------------------------------------------

    def _write(self, kept: StoredJob, state: RecordState) -> StoredJob | None:
        """Write a job's next state if nobody else has changed it."""
        new = StoredJob(kept.key, new_version(), state)
        return new if self.jobs.put([(record_of(new), kept.version)])[0] else None

    def _add_job_rows(self, rows: Sequence[JobRow], replace: bool) -> list[tuple[int, int]]:
        if not replace:
            refuse_twins(rows)
        before = self._read(row.id for row in rows)
        written: list[tuple[StoredJob, StoredJob | None]] = []
        for row, old in zip(rows, before, strict=True):
            if not replace and old is not None and not old.state.gone:
                raise ConflictingIdError(row.id)
            written.append((added(row, old), old))
        done = self.jobs.put([(record_of(new), None if old is None else old.version) for new, old in written])
        if not replace and not all(done):
            self._take_back([pair for pair, was_written in zip(written, done, strict=True) if was_written])
            raise ConflictingIdError(rows[done.index(False)].id)
        stored = [
            new if was_written else self._replace_alone(row)
            for row, (new, _), was_written in zip(rows, written, done, strict=True)
        ]
        self._watch.tell()
        return [(new.version, new.state.incarnation) for new in stored]

    def _take_back(self, written: Iterable[tuple[StoredJob, StoredJob | None]]) -> None:
        """Undo the writes of a refused batch."""
        for new, old in written:
            if old is None:
                self.jobs.delete([(new.key, new.version)])
            else:
                self._write(new, old.state)

    def _replace_alone(self, row: JobRow) -> StoredJob:
        def attempt() -> StoredJob | None:
            old = self._read([row.id])[0]
            new = added(row, old)
            return new if self.jobs.put([(record_of(new), None if old is None else old.version)])[0] else None

        return insist(attempt)

    def _update_job_row(self, row: JobRow) -> int:
        kept = self._present(row.id)
        if kept.version != row.version:
            raise VersionConflict(row.id)
        new = self._write(kept, replace(kept.state, frame=row.frame, at=row.at, nominal=row.nominal))
        if new is None:
            self._present(row.id)  # it is gone, or was changed
            raise VersionConflict(row.id)
        self._watch.tell()
        return new.version

    def _take_out(self, kept: StoredJob) -> bool:
        """Remove a job, but not the runs it has fired."""
        if kept.state.fired is None:
            return self.jobs.delete([(kept.key, kept.version)])[0]
        return self._write(kept, replace(kept.state, gone=True)) is not None

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        """Remove jobs; the runs they have fired still run."""
        if broken:
            aside = [kept for kept in self._set_aside() if job_ids is None or _aside_id(kept) in job_ids]
            return sum(self.jobs.delete([(kept.key, kept.version) for kept in aside])) if aside else 0
        found = self._everything("job:") if job_ids is None else self._read(dict.fromkeys(job_ids))
        kept = [each for each in found if each is not None and not each.state.gone]
        idle = [each for each in kept if each.state.fired is None]
        done = self.jobs.delete([(each.key, each.version) for each in idle]) if idle else []
        changed = [each for each, deleted in zip(idle, done, strict=True) if not deleted]
        busy = [each for each in kept if each.state.fired is not None]
        return sum(done) + sum(self._remove_busy(each.id) for each in (*busy, *changed))

    def _remove_busy(self, job_id: str) -> bool:
        """Remove a job that has fired or was changed; return False if somebody else did it first."""
        try:
            return insist(lambda: self._take_out(self._present(job_id)))
        except JobLookupError:
            return False

    # -- set aside ---------------------------------------------------------------------------------------------

    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        """Keep a job that cannot be restored out of the way of the others, or put it back."""
        if reason is None:
            return self._put_back(job_id)
        kept = self._read([job_id])[0]
        if kept is None or kept.state.gone or kept.version != version:
            return False
        aside = self._keep_aside(kept, reason)
        if self._take_out(kept):
            return True
        self.jobs.delete([(aside.key, aside.version)])
        return False

    def _keep_aside(self, kept: StoredJob, reason: str, fired: OpenFiring | None = None) -> StoredJob:
        """Write a copy of a job among the broken ones; its open firing stays with the job, unless that is broken."""
        version = new_version()
        state = replace(kept.state, fired=fired, gone=False, reason=reason, set_aside_at=self.runs.beat())
        aside = StoredJob(f"broken:{version}:{kept.id}", version, state)
        # It has no wake time, so it is never due.
        self.jobs.put([(replace(record_of(aside), wake=None), None)])
        return aside

    def _set_aside(self) -> list[StoredJob]:
        return sorted(self._everything("broken:"), key=lambda kept: kept.state.set_aside_at)

    def _broken_jobs(self) -> list[BrokenJob]:
        return [
            BrokenJob(
                id=_aside_id(kept),
                reason=kept.state.reason,
                payload=kept.state.frame,
                at=kept.state.set_aside_at,
            )
            for kept in self._set_aside()
        ]

    def _put_back(self, job_id: str) -> bool:
        aside = next((kept for kept in reversed(self._set_aside()) if _aside_id(kept) == job_id), None)
        if aside is None:
            return False
        old = self._read([job_id])[0]
        if old is not None and not old.state.gone:
            raise ConflictingIdError(job_id)
        fired = aside.state.fired if old is None else old.state.fired
        state = replace(aside.state, fired=fired, reason="", set_aside_at=0)
        new = StoredJob(job_key(job_id), new_version(), state)
        if not self.jobs.put([(record_of(new), None if old is None else old.version)])[0]:
            raise ConflictingIdError(job_id)
        self.jobs.delete([(aside.key, aside.version)])
        self._watch.tell()
        return True


def _aside_id(kept: StoredJob) -> str:
    """Return the id that a job had before it was set aside."""
    return kept.id.partition(":")[2]
