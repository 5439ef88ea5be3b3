"""Jobs in one store, their runs in another: firing in three steps that any scheduler can finish.

A store that holds only jobs offers `JobRecords`, a few primitives over opaque records with one compare-and-set.
`SplitJobStore` combines it with any store that holds runs into a whole store. A fire takes three steps:

1. Write the job's record with its next time and, inside it, the fired runs: the *open firing*.
2. Call `add_fired` in the store of the runs.
3. Remove the open firing from the record.

If a scheduler finds an open firing that is older than a lease, or whose job is due again, it repeats steps 2 and 3. All
times come from the clock of the store of the runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mainspring.codec import Codec, FrameError
from mainspring.core.instants import SECOND
from mainspring.core.plan import Firing
from mainspring.core.run import Error, Run, Status, is_local
from mainspring.core.stored.settling import unclaimed
from mainspring.jobstores.base import Answers, Health, JobStore, RunQuery, Stats
from mainspring.jobstores.finding import count_unfinished
from mainspring.jobstores.records.rows import JobRow, new_version
from mainspring.jobstores.split.contents import OpenFiring, StoredJob, insist, kept_in, written
from mainspring.jobstores.split.fired import add_fired, as_waiting
from mainspring.jobstores.split.jobs import JobsInRecords
from mainspring.jobstores.split.records import JobRecord, JobRecords, is_due
from mainspring.jobstores.values import IDS_REMEMBERED_US
from mainspring.locks import free_in_children

__all__ = ["JobRecord", "JobRecords", "SplitJobStore"]

_UNREADABLE_PAUSE_US: Final = 60 * SECOND
"""Leave a record that this node cannot read to other nodes for this long, then look again."""

log = logging.getLogger("mainspring.jobstores")


class SplitJobStore(JobsInRecords):
    """A whole store: jobs in `jobs`, everything else in `runs`, which may hold jobs of its own.

    Jobs are signed with `codec`, by default that of `runs`, which must be able to read the fired runs.
    """

    def __init__(self, jobs: JobRecords, runs: JobStore, *, codec: Codec | None = None) -> None:
        super().__init__(jobs, runs, codec)
        self._owns_runs = False
        self._hiding = free_in_children(threading.Lock())
        self._hidden: dict[str, tuple[int, int]] = {}  # records that this process leaves alone: version, until when

    def start(self, scheduler: Any, alias: str) -> None:
        """Open both stores; open the store of the runs only if it is not started yet."""
        if self.runs._alias is None and not self._runs_are_shared:
            self._owns_runs = True
            self.runs.start(scheduler, alias)
        self.jobs.start()
        super().start(scheduler, alias)

    def shutdown(self) -> None:
        """Close the stores that `start` opened, and wake all waiters."""
        self._watch.stop()
        self.jobs.shutdown()
        if self._owns_runs:
            self._owns_runs = False
            self.runs.shutdown()
            if not self._watch.join():  # a thread that was about to wait has opened it again
                self.runs.shutdown()
            self.runs._alias = None
        self._watch.join()

    def health(self) -> Health:
        """Return the durability of the weaker of the two stores, with the reasons of both."""
        jobs, runs = self.jobs.health(), self.runs.health()
        states = {jobs.durable, runs.durable}
        return Health(
            durable=False if False in states else None if None in states else True,
            replicas=min(jobs.replicas, runs.replicas),
            reasons=(*(f"jobs: {why}" for why in jobs.reasons), *(f"runs: {why}" for why in runs.reasons)),
            version=", ".join(filter(None, [jobs.version, runs.version])),
            schema=runs.schema,
            warnings=(*jobs.warnings, *runs.warnings),
        )

    def stats(self, query: RunQuery | None = None) -> Stats:
        """Return the counts of the store of the runs, and the number of jobs here."""
        stats = self.runs.stats(query)
        return stats if query is not None else replace(stats, jobs=len(self._job_rows(None)))

    def __repr__(self) -> str:
        return f"<SplitJobStore (jobs in {type(self.jobs).__name__}, runs in {self.runs!r})>"

    # -- due ---------------------------------------------------------------------------------------------------

    def _due_rows(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        now = self.runs.beat()
        if not limit and not hold:
            return now, [], self._next_at()
        hidden = self._hide([], now, now)
        found, later = self._look(now, limit + len(hidden))
        left_open = [kept for kept in found if kept.state.fired is not None and not _matches(hidden, kept)]
        if left_open:
            self._finish(left_open, now)
            hidden = self._hide([], now, now)
            found, later = self._look(now, limit + len(hidden))
        times = [] if later is None else [later]
        page: list[StoredJob] = []
        for kept in found:
            if _matches(hidden, kept):
                times.append(hidden[kept.key][1])
            elif kept.state.fired is not None:  # another scheduler is firing it
                times.append(now + SECOND)
            elif len(page) == limit:
                times.append(kept.state.at or now)
            else:
                page.append(kept)
        self._hide(page, now, now + int(hold * SECOND))
        rows = [kept.row for kept in page]
        counts = count_unfinished(self.runs, [(row.id, row.incarnation) for row in rows]) if rows else []
        for row, number in zip(rows, counts, strict=True):
            row.unfinished = number
        return now, rows, min(times, default=None)

    def _look(self, now: int, limit: int) -> tuple[list[StoredJob], int | None]:
        records, later = self.jobs.due(now, limit)
        # A record that was moved while it was read is not one whose firing was left open.
        return [kept_in(record) for record in records if is_due(record, now)], later

    def _hide(self, kept: Iterable[StoredJob], now: int, until: int) -> dict[str, tuple[int, int]]:
        """Leave jobs alone for a while; return all that are left alone."""
        with self._hiding:
            self._hidden = {key: seen for key, seen in self._hidden.items() if seen[1] > now}
            if until > now:
                self._hidden.update((each.key, (each.version, until)) for each in kept)
            return dict(self._hidden)

    # -- fire --------------------------------------------------------------------------------------------------

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        """Take each step whose job is unchanged; see `JobStore.fire`. A run of a queue always waits there."""
        waiting = {run.id for step in firings for run in step.runs if run.token is not None and not is_local(run.queue)}
        if waiting:
            firings = [
                replace(step, runs=tuple(unclaimed(run) if run.id in waiting else run for run in step.runs))
                for step in firings
            ]
        answers: Answers[tuple[str, ...] | None] = Answers([None] * len(firings), waiting=waiting)
        now = self.runs.beat()
        steps: dict[str, tuple[int, StoredJob, StoredJob]] = {}  # by key, once each: place in the answer, old, new
        for number, (step, kept) in enumerate(zip(firings, self._read(s.job_id for s in firings), strict=True)):
            if kept is None or kept.key in steps or not _may_fire(kept, step, now):
                continue
            if kept.state.fired is not None:  # this makes a new version, so the step is lost
                self._finish([kept], now)
                continue
            until = now + int(lease * SECOND)
            new = self._fired(kept, step, now, until)
            if self._is_too_large(new) and len(step.runs) > 1:
                answers[number] = self._fire_in_parts(kept, step, lease, now)
            else:
                steps[kept.key] = number, kept, new
        won = self._open(steps.values())
        runs = [run for number, _ in won for run in firings[number].runs]
        missed = [run for number, _ in won for run in firings[number].missed]
        inserted = iter(self._add_fired(runs, missed, lease) if runs or missed else ())
        for number, _ in won:
            answers[number] = tuple(run.id for run in firings[number].runs if next(inserted))
        try:
            self._close([kept for _, kept in won if kept.state.fired is not None])
        except Exception as error:
            # All is done except the tidying; the next scheduler does that.
            log.warning("jobs have fired, but their store did not take the update; a scheduler repeats it: %s", error)
        if any(firings[number].job is not None for number, _ in won):
            self._watch.stir()
        return answers

    def _add_fired(self, runs: Sequence[Run], missed: Sequence[Run], lease: float) -> list[bool]:
        return add_fired(self.runs, runs, missed, lease)

    def _fired(self, kept: StoredJob, step: Firing, now: int, until: int) -> StoredJob:
        """Return a job as it is after its fire, with the fired runs inside."""
        version, pack = new_version(), self._packer.run_row
        gone = step.next_at is None and not step.unscheduled
        fired = None
        if step.runs or step.missed:
            fired = OpenFiring(
                version, now, until, [pack(run) for run in step.runs], [pack(run) for run in step.missed]
            )
        miss = None if step.miss is None else msgspec.json.encode(step.miss).decode()
        state = replace(kept.state, at=step.next_at, nominal=step.next_nominal, miss=miss, fired=fired, gone=gone)
        if step.job is not None:
            state = replace(state, frame=self._packer.job_row(step.job).frame)
        return written(kept.key, state, version)

    def _is_too_large(self, new: StoredJob) -> bool:
        most = self.jobs.max_bytes
        return most is not None and len(new.record.data) > most

    def _fire_in_parts(self, kept: StoredJob, step: Firing, lease: float, now: int) -> tuple[str, ...] | None:
        """Fire many overdue runs of a job whose store cannot hold them all in one record.

        The job stays due until the last part. So if this scheduler dies, another one makes the same runs, and finds the
        first of them in the store.
        """
        number = len(step.runs) // 2
        part = replace(step, runs=step.runs[:number], missed=(), next_at=kept.state.at, next_nominal=kept.state.nominal)
        part = replace(part, job=None, unscheduled=True)
        opened = self._fired(kept, part, now, now + int(lease * SECOND))
        opened = written(kept.key, replace(opened.state, miss=kept.state.miss), opened.version)
        if self._is_too_large(opened) and number > 1:
            first = self._fire_in_parts(kept, part, lease, now)
        elif self._open([(0, kept, opened)]):
            inserted = self._add_fired(part.runs, (), lease)
            first = tuple(run.id for run, is_new in zip(part.runs, inserted, strict=True) if is_new)
            self._close([opened])
        else:
            return None
        left = self._read([step.job_id])[0]
        if first is None or left is None or left.state.at != kept.state.at:  # somebody else has fired the rest
            return first
        rest = self.fire([replace(step, version=left.version, runs=step.runs[number:])], lease)[0]
        return (*first, *(rest or ()))

    def _open(self, steps: Iterable[tuple[int, StoredJob, StoredJob]]) -> list[tuple[int, StoredJob]]:
        """Write the jobs as they are after their fire; return the steps that this call took first."""
        ended: list[tuple[int, StoredJob, StoredJob]] = []  # finished, and nothing was fired
        others: list[tuple[int, StoredJob, StoredJob]] = []
        for step in steps:
            (ended if step[2].state.gone and step[2].state.fired is None else others).append(step)
        for _, _, new in others:
            self.jobs.check_size(new.record, new.id)
        done = self._delete([old for _, old, _ in ended])
        done += self._put([(new, old) for _, old, new in others])
        return [(number, new) for (number, _, new), won in zip([*ended, *others], done, strict=True) if won]

    def _close(self, opened: Sequence[StoredJob]) -> None:
        """Remove these open firings from their records, but no later ones."""
        stay = [kept for kept in opened if not kept.state.gone]
        leave = [kept for kept in opened if kept.state.gone]
        done = self._put([(written(kept.key, replace(kept.state, fired=None)), kept) for kept in stay])
        done += self._delete(leave)
        for kept, is_closed in zip([*stay, *leave], done, strict=True):
            if not is_closed:
                insist(lambda kept=kept: self._close_again(kept))  # type: ignore[misc]

    def _close_again(self, opened: StoredJob) -> bool:
        """Close a firing in a record that was changed meanwhile."""
        kept = self._read([opened.id])[0]
        if kept is None or kept.state.fired is None or opened.state.fired is None:
            return True
        if kept.state.fired.mark != opened.state.fired.mark:
            return True
        if kept.state.gone:
            return self._delete([kept])[0]
        return self._write(kept, replace(kept.state, fired=None)) is not None

    # -- finishing what others left open -----------------------------------------------------------------------

    def _finish(self, left_open: Iterable[StoredJob], now: int) -> None:
        """Finish open firings that a scheduler may have abandoned: add the runs as waiting, then update the records."""
        runs: list[Run] = []
        finished: list[Run] = []
        closing: list[StoredJob] = []
        for kept in left_open:
            fired = kept.state.fired
            assert fired is not None
            try:
                some = [replace(as_waiting(self._packer.run(row)), token=None) for row in fired.runs]
                missed = [self._packer.run(row) for row in fired.missed]
            except FrameError as error:
                if self._is_for_others(error):
                    self._log_missing(f"a fire of job {kept.id!r}", error)
                    self._hide([kept], now, now + _UNREADABLE_PAUSE_US)
                    continue
                log.error("a fire of job %r cannot be restored and is set aside: %s", kept.id, error)
                self._keep_aside(kept, f"a fire of it: {error.reason}: {error}", fired)
            else:
                if now - fired.since >= IDS_REMEMBERED_US:
                    missed += self._lost(some, now)
                    some = []
                runs += some
                finished += missed
            closing.append(kept)
        if runs or finished:
            self._add_fired(runs, finished, 0)
        self._close(closing)

    def _lost(self, runs: list[Run], now: int) -> list[Run]:
        """Return the records of missing runs when it is too late to tell whether they were ever added."""
        if not runs:
            return []
        found = self.runs.get_runs([run.id for run in runs])
        why = "its scheduler died while it fired, and nobody knows whether it has run: send it back if it has not"
        error = Error(type="SchedulerLost", message=why, traceback="", at=now, attempt=0)
        return [
            replace(run, status=Status.FAILED, reason="lost", errors=(error,), finished_at=now, after=())
            for run, known in zip(runs, found, strict=True)
            if known is None
        ]


def _matches(hidden: dict[str, tuple[int, int]], kept: StoredJob) -> bool:
    return hidden.get(kept.key, (0, 0))[0] == kept.version


def _may_fire(kept: StoredJob, step: Firing, now: int) -> bool:
    state = kept.state
    due = step.unscheduled or (state.at is not None and state.at <= now)
    return due and not state.gone and kept.version == step.version
