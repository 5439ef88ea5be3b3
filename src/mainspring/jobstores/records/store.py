"""The base class of all stores that keep bytes: it turns jobs and runs into rows and back.

A back end handles ids, times, versions and opaque bytes. A record that cannot be restored is set aside with its bytes
and the reason, and everything else goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, ClassVar, Final

import msgspec

from mainspring.codec import Codec, FrameError, Reason
from mainspring.core.insight.acts import KEEP_ACTS_US, Act, act_id
from mainspring.core.job import Job
from mainspring.core.lanes import Want
from mainspring.core.plan import DueJob, Firing, Miss
from mainspring.core.run import MESSAGE_CHARS, Beat, Condition, Outcome, Run
from mainspring.errors import ConflictingIdError, JobLookupError, OutcomeUnknown, VersionConflict
from mainspring.jobstores.base import Answers, ClaimedRuns, DuePage, Hold, JobList, PackLike, RunQuery, unknown_job
from mainspring.jobstores.records.acts import act_of_row, act_row
from mainspring.jobstores.records.packing import RecordPacker
from mainspring.jobstores.records.patterns import rows_like
from mainspring.jobstores.records.row_store import RowStore
from mainspring.jobstores.records.rows import (
    ALTERED,
    FireRow,
    JobRow,
    RunRow,
    SettleRow,
    job_damage,
    run_damage,
)

__all__ = ["RecordStore"]


_DELIVERY: Final = attrgetter("policy.delivery")
_PACKED: Final = frozenset([RunRow])
_MOST_REASONS: Final = 1000
"""Remember this many logged reasons for leaving a record to other nodes."""

_MOST_LOST_PAGES: Final = 20
"""Skip at most this many pages of lost runs that only other nodes can read."""
_LACKS: Final = {
    Reason.MISSING_CODE: "code that this node does not have",
    Reason.UNKNOWN_KEY: "a key that this node does not have",
    Reason.UNKNOWN_VERSION: "a newer mainspring than this node's",
}

log = logging.getLogger("mainspring.jobstores")


class RecordStore(RowStore):
    """A store that keeps bytes. A back end implements the remaining methods of `RowStore`."""

    _logged_unsigned: ClassVar[bool] = False

    def __init__(self, codec: Codec | None = None) -> None:
        self._packer = RecordPacker(codec or Codec())
        self.shown = self._packer.shown
        """Restores a row for display; if its bytes are damaged, the reason of the run says so."""
        self._missing: set[str] = set()
        self._lapsed_skipped = 0
        """The number of leading lapsed runs that only other nodes can read."""

    # -- jobs --------------------------------------------------------------------------------------------------

    def add_jobs(self, jobs: Sequence[Job], *, replace: bool = False) -> None:
        """Add jobs, all or none, and set `version` and `incarnation` on each."""
        rows = [self._packer.job_row(job) for job in jobs]
        for job, (version, incarnation) in zip(jobs, self._add_job_rows(rows, replace), strict=True):
            job.version, job.incarnation = version, incarnation

    def update_job(self, job: Job) -> None:
        """Replace the job if its stored version is still `job.version`, and set the new one on it."""
        made_anew = not job.version
        while True:
            if made_anew:
                self._take_version(job)
            try:
                job.version = self._update_job_row(self._packer.job_row(job))
                return
            except JobLookupError:
                raise unknown_job(self, job.id) from None
            except VersionConflict:
                if not made_anew:
                    raise

    def _job_row(self, job_id: str) -> JobRow | None:
        rows = self._job_rows([job_id])
        return rows[0] if rows else None

    def _take_version(self, job: Job) -> None:
        row = self._job_row(job.id)
        if row is None:
            raise unknown_job(self, job.id)
        job.version, job.incarnation = row.version, row.incarnation

    def get_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> JobList:
        """Return jobs, or those that were set aside; set aside jobs that cannot be restored."""
        if broken:
            found = self._broken_jobs()
            return JobList(broken=[each for each in found if job_ids is None or each.id in job_ids])
        restored = map(self._restore_job, self._whole_jobs(self._job_rows(job_ids)))
        return JobList(jobs=[job for job in restored if job is not None])

    def examine_jobs(self) -> tuple[list[Job], dict[str, str]]:
        """Return the jobs that this process can restore, and the reasons for the others by id; set none aside."""
        jobs, reasons = [], {}
        for row in self._job_rows(None):
            try:
                jobs.append(self._packer.job(row))
            except FrameError as error:
                reasons[row.id] = f"{error.reason}: {error}"
        return jobs, reasons

    def due(self, limit: int, hold: float) -> DuePage:
        """Return up to `limit` due jobs; set aside those that cannot be restored."""
        now, rows, next_at = self._due_rows(limit, hold)
        found = []
        for row in self._whole_jobs(rows):
            job = self._restore_job(row)
            if job is not None and row.at is not None:
                nominal = row.at if row.nominal is None else row.nominal
                miss = None if row.miss is None else _miss(row.id, row.miss)
                found.append(DueJob(job, row.at, nominal, row.version, row.incarnation, row.unfinished, miss))
        return DuePage(now, found, next_at)

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        """Take each step whose job is unchanged; see `JobStore.fire`."""
        return self._fire_rows(list(map(self._fire_row, firings)), lease)

    def _fire_row(self, step: Firing) -> FireRow:
        pack = self._packer.run_row
        return FireRow(
            step.job_id,
            step.version,
            step.next_at,
            step.next_nominal,
            None if step.miss is None else msgspec.json.encode(step.miss).decode(),
            [pack(run, fired=True) for run in step.runs],
            list(map(pack, step.missed)),
            step.unscheduled,
            None if step.job is None else self._packer.job_row(step.job).frame,
        )

    def _restore_job(self, row: JobRow) -> Job | None:
        try:
            return self._packer.job(row)
        except FrameError as error:
            if self._is_for_others(error):
                self._log_missing(f"job {row.id!r}", error)
            else:
                log.error("job %r cannot be restored and is set aside: %s", row.id, error)
                reason = _reason(error)
                if self.set_aside(row.id, row.version, reason):
                    self._tell_set_aside("job", row.id, None, reason)
            return None

    def start(self, scheduler: Any, alias: str) -> None:
        """Open the store, and put back records that were set aside and can be restored now."""
        super().start(scheduler, alias)
        if not self._packer.codec.signed and not RecordStore._logged_unsigned:
            RecordStore._logged_unsigned = True
            log.info("no key is set, so nothing is signed: whoever can write to the store decides which functions run")
        with suppress(OutcomeUnknown):  # too few replicas: the janitor repeats the sweep, which is safe
            self._set_altered_aside((), ())
        self._restore_readable()

    def mend(self, *, thorough: bool = False) -> int:
        """Put back the jobs that can be restored by now: a node without their key may have set them aside.

        A node without a key does this only at its start. Otherwise it would keep putting back jobs that others refuse.
        """
        altered = self._set_altered_aside((), ()) if thorough else 0
        return altered + (self._restore_readable() if self._packer.codec.signed else 0)

    def _whole_jobs(self, rows: list[JobRow]) -> list[JobRow]:
        """Return the rows that are whole; set the others aside."""
        altered = [row.id for row in rows if job_damage(row) is not None]
        if not altered:
            return rows
        self._set_altered_aside((), altered)
        return [row for row in rows if row.id not in altered]

    def _whole_runs(self, rows: list[RunRow]) -> tuple[list[RunRow], list[str]]:
        """Set aside rows that are not whole; return the whole rows, and the ids of the others."""
        altered = [row.id for row in rows if run_damage(row) is not None]
        if not altered:
            return rows, []
        self._set_altered_aside(altered, ())
        return [row for row in rows if row.id not in altered], altered

    def _restore_readable(self) -> int:
        restored = 0
        for broken in self._broken_jobs():
            try:
                self._packer.job(JobRow(broken.id, None, None, broken.payload))
            except FrameError:
                continue
            if ALTERED in broken.reason:  # its bytes are whole, but a person has to decide when it is due
                continue
            try:
                # Any job that has the id now, readable here or not, has replaced the one that was set aside.
                back = self._job_row(broken.id) is None and self.set_aside(broken.id, 0, None)
            except ConflictingIdError:  # added just now
                continue
            if back:
                log.warning("job %r can be restored again and is back", broken.id)
                restored += 1
        return restored

    def sign_anew(self, job: Job) -> bool:
        """Sign an unsigned stored job that has the declaration of `job`; see `JobStore.sign_anew`."""
        row = self._job_row(job.id) if self._packer.codec.signed else None
        if row is None or job.declared is None or self._packer.unsigned_declaration(row) != job.declared:
            return False
        # Take over only its times: the rest of its bytes is unsigned, so it cannot be trusted.
        job.at, job.nominal, job.timed, job.version = row.at, row.nominal, True, row.version
        try:
            self.update_job(job)
        except (JobLookupError, VersionConflict):  # another node did it first
            return False
        log.warning("job %r was stored unsigned; the code declares it as it was, so it is signed now", job.id)
        return True

    def _is_for_others(self, error: FrameError) -> bool:
        """Return True if other nodes may restore this record: this node lacks code or a key, or is too old."""
        keyless = not self._packer.codec.signed
        return error.reason in _LACKS and (keyless or error.reason is not Reason.UNKNOWN_KEY)

    def _log_missing(self, what: str, error: FrameError) -> None:
        """Log once per missing key or function that this node leaves such records to other nodes."""
        if str(error) not in self._missing:
            if len(self._missing) >= _MOST_REASONS:
                self._missing.clear()
            self._missing.add(str(error))
            log.error("%s needs %s and is left to other nodes: %s", what, _LACKS[error.reason], error)

    # -- runs --------------------------------------------------------------------------------------------------

    def pack_run(self, run: Run | RunRow) -> RunRow:
        """Return a run as its row; raise EncodeError if it cannot be kept. A row is packed already."""
        return run if isinstance(run, RunRow) else self._packer.run_row(run)

    def pack_like(self, run: Run) -> PackLike:
        """Return a function that packs runs like this one."""
        return rows_like(self._packer, run)

    def add_runs(self, runs: Sequence[Run | RunRow]) -> Answers[str | None]:
        """Add waiting runs; return the id under which each is stored, None if a predecessor is not there."""
        # A caller with many runs has packed them all: avoid a check for each.
        packed: list[Any] = list(runs if _PACKED.issuperset(map(type, runs)) else map(self.pack_run, runs))
        return self._add_run_rows(packed)

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        """Lease due runs, for each want up to its limit; set aside those that cannot be restored."""
        now, rows, next_at = self._claim_rows(wants, node, token, lease)
        runs = self._runs(self._whole_runs(rows)[0], now)[0]
        if "at_most_once" in map(_DELIVERY, runs):
            self._keep_claim(token)
        return ClaimedRuns(now, runs, next_at)

    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        """Renew the lease of each claim that is still held, store its reports, and return its `Hold`."""
        # Add reports to the stored ones. Only the holder of the token writes them, so reading first is safe.
        reporting = [beat.run_id for beat in beats if beat.progress is not None or beat.data is not None or beat.log]
        stored = {row.id: row for row in self._run_rows(reporting)} if reporting else {}
        return self._extend_rows([self._packer.beat_row(beat, stored.get(beat.run_id)) for beat in beats], lease)

    def pack_outcome(self, outcome: Outcome) -> SettleRow:
        """Return an outcome as its row; raise EncodeError if it cannot be kept."""
        pack = self._packer.run_row
        return SettleRow(pack(outcome.run), outcome.condition, list(map(pack, outcome.then)))

    def settle(self, outcomes: Sequence[Outcome | SettleRow]) -> Answers[bool]:
        """Write each outcome whose condition holds, with its `then`; return which were written."""
        return self._settle_rows([row if isinstance(row, SettleRow) else self.pack_outcome(row) for row in outcomes])

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        """Return the run with each of these ids, or None."""
        rows, altered = self._whole_runs(self._run_rows(run_ids))
        found: dict[str, Run] = {}
        for row in (*rows, *(self._run_rows(altered) if altered else ())):
            found[row.id] = self._packer.shown(row)
        return list(map(found.get, run_ids))

    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        """Return matching runs, newest first; a run that cannot be restored has only its reason."""
        if query.lapsed:
            return self._lapsed(limit)
        rows, altered = self._whole_runs(self._find_run_rows(query, after, limit))
        if altered:  # read again: their status is broken now
            rows = self._find_run_rows(query, after, limit)
        return [self._packer.shown(row) for row in rows]

    def recent_runs(self, job_ids: Sequence[str], limit: int) -> list[list[Run]]:
        """Return up to `limit` of the newest runs of each job."""
        found = self._recent_run_rows(job_ids, limit)
        if any(self._whole_runs(rows)[1] for rows in found):  # read again: the altered ones are broken now
            found = self._recent_run_rows(job_ids, limit)
        return [[self._packer.shown(row) for row in rows] for rows in found]

    def _recent_run_rows(self, job_ids: Sequence[str], limit: int) -> list[list[RunRow]]:
        """Read the newest runs of each job; a store of one file or server does it in one go."""
        return [self._find_run_rows(RunQuery(job_id=job_id), None, limit) for job_id in job_ids]

    def _lapsed(self, limit: int) -> list[Run]:
        """Return running runs whose lease is over by the store's clock; set aside the damaged ones.

        Skip runs that only other nodes can read; if there are very many of them, the next call starts after them.
        """
        found: list[Run] = []
        for _ in range(_MOST_LOST_PAGES):
            wanted = limit - len(found)
            rows = self._lapsed_rows(wanted, self._lapsed_skipped + len(found))
            if rows:
                runs, left = self._runs(self._whole_runs(rows)[0], self.beat(), Condition.EXPIRED)
                found += runs
                self._lapsed_skipped += left
            if len(rows) < wanted:
                self._lapsed_skipped = 0
                break
            if len(found) == limit:
                break
        return found

    # -- acts of people ----------------------------------------------------------------------------------------

    def acts(
        self, new: Sequence[Act] = (), *, about: str | None = None, after: Act | None = None, limit: int = 0
    ) -> list[Act]:
        """Keep acts of people, signed; return acts, newest first. An act that cannot be verified says so."""
        if new:
            oldest = act_id(max(act.at for act in new) - KEEP_ACTS_US)
            self._add_act_rows([act_row(self._packer.codec, act) for act in new], oldest)
        rows = self._find_act_rows(about, None if after is None else after.id, limit) if limit else []
        return [act_of_row(self._packer.codec, row) for row in rows]

    def _runs(self, rows: Iterable[RunRow], now: int, condition: Condition = Condition.HELD) -> tuple[list[Run], int]:
        """Restore running runs and set aside damaged ones; also return how many runs only other nodes can read."""
        runs, refused, left = [], [], 0
        broken: dict[str, str] = {}
        for row in rows:
            try:
                runs.append(self._packer.run(row))
            except FrameError as error:
                if self._is_for_others(error):
                    self._log_missing(f"run {row.id!r}", error)
                    if condition is Condition.HELD:
                        refused.append(self._packer.given_back_row(row, now))
                    else:  # only a node that can read the run knows whether to retry it
                        left += 1
                else:
                    log.error("run %r cannot be restored and is set aside: %s", row.id, error)
                    broken[row.id] = _reason(error)
                    refused.append(self._packer.broken_row(row, broken[row.id], now))
        if refused:
            answers = self._settle_rows([SettleRow(row, condition, []) for row in refused])
            for row, accepted in zip(refused, answers, strict=True):
                if accepted and row.id in broken:
                    self._tell_set_aside("run", row.id, row.queue, broken[row.id])
        return runs, left

    def _tell_set_aside(self, what: str, record_id: str, queue: str | None, reason: str) -> None:
        if self.on_set_aside is not None:
            self.on_set_aside(what, record_id, queue, reason)


def _reason(error: FrameError) -> str:
    """Return the reason for setting a record aside, cut to the length that every database can keep."""
    return f"{error.reason}: {error}"[:MESSAGE_CHARS]


def _miss(job_id: str, stored: str) -> Miss | None:
    """Restore a job's open missed record; if it is damaged, begin a new one, so that the job still fires."""
    try:
        return msgspec.json.decode(stored, type=Miss)
    except Exception as error:
        log.error("the open missed record of job %r is damaged, so a new one begins: %s", job_id, error)
        return None
