"""Jobs as records of a store that holds only jobs: every write is one compare-and-set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import BrokenJob
from mainspring.jobstores.records.rows import JobRow, new_version
from mainspring.jobstores.split.contents import (
    OpenFiring,
    RecordState,
    StoredJob,
    added,
    insist,
    job_key,
    kept_in,
    refuse_twins,
    written,
)
from mainspring.jobstores.split.runs import RunsElsewhere

__all__ = ["JobsInRecords"]


class JobsInRecords(RunsElsewhere):
    """The jobs of a split store."""

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

    def _put(self, writes: Sequence[tuple[StoredJob, StoredJob | None]]) -> list[bool]:
        """Write each job if the stored record is still the seen one; of two writes of a job, only the first."""
        first = {new.key: number for number, (new, _) in reversed([*enumerate(writes)])}
        sent = [(new, old) for number, (new, old) in enumerate(writes) if first[new.key] == number]
        done = self.jobs.put([(new.record, None if old is None else old.record) for new, old in sent]) if sent else []
        won = {new.version for (new, _), was_written in zip(sent, done, strict=True) if was_written}
        return [new.version in won for new, _ in writes]

    def _delete(self, seen: Sequence[StoredJob]) -> list[bool]:
        return self.jobs.delete([kept.record for kept in seen]) if seen else []

    def _write(self, kept: StoredJob, state: RecordState) -> StoredJob | None:
        """Write a job's next state if no other process has changed it; otherwise return None."""
        new = written(kept.key, state)
        return new if self._put([(new, kept)])[0] else None

    def _check_new(self, writes: Sequence[tuple[StoredJob, StoredJob | None]]) -> None:
        """Raise if the store cannot take these jobs: it has to hold each of them together with a run."""
        for new, _ in writes:
            self.jobs.check_size(replace(new.record, data=new.record.data + new.state.frame), new.id)
        self.jobs.check_room([new.record for new, old in writes if old is None])

    def _add_job_rows(self, rows: Sequence[JobRow], replace: bool) -> list[tuple[int, int]]:
        if not replace:
            refuse_twins(rows)
        before = self._read(row.id for row in rows)
        writes: list[tuple[StoredJob, StoredJob | None]] = []
        for row, old in zip(rows, before, strict=True):
            if not replace and old is not None and not old.state.gone:
                raise ConflictingIdError(row.id)
            writes.append((added(row, old), old))
        self._check_new(writes)
        done = self._put(writes)
        if not replace and not all(done):
            self._take_back([pair for pair, was_written in zip(writes, done, strict=True) if was_written])
            raise ConflictingIdError(rows[done.index(False)].id)
        stored = [
            new if was_written else self._replace_alone(row)
            for row, (new, _), was_written in zip(rows, writes, done, strict=True)
        ]
        self._watch.stir()
        return [(new.version, new.state.incarnation) for new in stored]

    def _take_back(self, done: Iterable[tuple[StoredJob, StoredJob | None]]) -> None:
        """Undo the writes of a refused batch."""
        for new, old in done:
            if old is None:
                self._delete([new])
            else:
                self._write(new, old.state)

    def _replace_alone(self, row: JobRow) -> StoredJob:
        def attempt() -> StoredJob | None:
            old = self._read([row.id])[0]
            new = added(row, old)
            return new if self._put([(new, old)])[0] else None

        return insist(attempt)

    def _update_job_row(self, row: JobRow) -> int:
        kept = self._present(row.id)
        if kept.version != row.version:
            raise VersionConflict(row.id)
        new = written(kept.key, replace(kept.state, frame=row.frame, at=row.at, nominal=row.nominal))
        self._check_new([(new, kept)])
        if not self._put([(new, kept)])[0]:
            self._present(row.id)  # it is gone, or was changed
            raise VersionConflict(row.id)
        self._watch.stir()
        return new.version

    def _take_out(self, kept: StoredJob) -> bool:
        """Remove a job, but not the runs it has fired."""
        if kept.state.fired is None:
            return self._delete([kept])[0]
        return self._write(kept, replace(kept.state, gone=True)) is not None

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        """Remove jobs; the runs they have fired still run."""
        if broken:
            aside = [kept for kept in self._set_aside() if job_ids is None or _aside_id(kept) in job_ids]
            return sum(self._delete(aside))
        found = self._everything("job:") if job_ids is None else self._read(dict.fromkeys(job_ids))
        kept = [each for each in found if each is not None and not each.state.gone]
        idle = [each for each in kept if each.state.fired is None]
        done = self._delete(idle)
        changed = [each for each, deleted in zip(idle, done, strict=True) if not deleted]
        busy = [each for each in kept if each.state.fired is not None]
        return sum(done) + sum(self._remove_busy(each.id) for each in (*busy, *changed))

    def _remove_busy(self, job_id: str) -> bool:
        """Remove a job that has fired or was changed; return False if another process removed it first."""
        try:
            return insist(lambda: self._take_out(self._present(job_id)))
        except JobLookupError:
            return False

    # -- set aside ---------------------------------------------------------------------------------------------

    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        """Set aside a job that cannot be restored, or put it back; see `JobStore.set_aside`."""
        if reason is None:
            return self._put_back(job_id)
        kept = self._read([job_id])[0]
        if kept is None or kept.state.gone or kept.version != version:
            return False
        aside = self._keep_aside(kept, reason)
        if self._take_out(kept):
            return True
        self._delete([aside])
        return False

    def _keep_aside(self, kept: StoredJob, reason: str, fired: OpenFiring | None = None) -> StoredJob:
        """Write a copy of a job among the broken ones; its open firing stays with the job, unless that is broken."""
        version = new_version()
        state = replace(kept.state, fired=fired, gone=False, reason=reason, set_aside_at=self.runs.beat())
        aside = written(f"broken:{version}:{kept.id}", state, version)
        aside.record.wake = None  # it is never due
        self._put([(aside, None)])
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
        if not self._put([(written(job_key(job_id), state), old)])[0]:
            raise ConflictingIdError(job_id)
        self._delete([aside])
        self._watch.stir()
        return True


def _aside_id(kept: StoredJob) -> str:
    """Return the id that a job had before it was set aside."""
    return kept.id.partition(":")[2]
