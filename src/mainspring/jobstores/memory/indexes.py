"""The indexes of the memory store: jobs by time, waiting runs by urgency, finished runs by age.

Heaps are never searched. An item carries the number under which its owner was filed. If the owner has another number by
now, the item is outdated: it is skipped when it comes up, and removed when more than half of a heap is outdated. An
item names its owner by id instead of referring to it, because the garbage collector skips tuples of numbers and text.
With a million jobs, its passes would otherwise take most of the time of adding them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

import msgspec

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.plan import Miss
from mainspring.core.run import Run
from mainspring.jobstores.values import IDS_REMEMBERED_US

__all__ = ["Entry", "History", "LaneIndex", "QueueLimit", "Record", "Timetable", "next_run_at", "take_runs"]

MOST_OUTDATED_ITEMS = 64
"""Sweep a heap only if it has more outdated items than this."""
MOST_RUNS_PASSED_BY = 2000
"""Pass at most this many runs whose gate is closed in one claim; the next claim goes on after them."""
PUT_OFF_US = 3600 * SECOND
"""Look again after this time at a run that is kept because of a successor."""
IDS_REMEMBERED = 100_000
"""Remember at most this many ids of deleted runs."""


class Entry(msgspec.Struct, eq=False):
    """A stored job: the store's own copy, and the state that the store adds."""

    job: Job
    version: int = 0  # 0: removed
    filed: bool = False  # whether the heap holds an item of this version
    unfinished: int = 0
    miss: Miss | None = None


class Record(msgspec.Struct, eq=False):
    """A stored run; `owner` is the job that its unfinished runs are counted for."""

    run: Run
    owner: Entry | None
    number: int = 0  # the number of its valid item in a queue or in the history; below 0 if that is in a heap of times


_Filed = tuple[int, int, str]  # run time, version, job id
_Page = tuple[int, int, list[_Filed]]  # hidden until, version of its first job; the earliest job is the last


class Timetable:
    """Jobs by next run time, and the pages of them that are hidden from other schedulers."""

    __slots__ = ("_heap", "_jobs", "_outdated", "_pages")

    def __init__(self, jobs: Mapping[str, Entry]) -> None:
        self._jobs = jobs
        self._heap: list[_Filed] = []
        self._pages: list[_Page] = []
        self._outdated = 0

    def put(self, entry: Entry, at: int | None, version: int) -> bool:
        """File a job under its new version and time (None: nowhere); return True if a loop must wake earlier."""
        if entry.filed:
            self._outdated += 1
        entry.version = version
        entry.filed = at is not None
        heap = self._heap
        if self._outdated > MOST_OUTDATED_ITEMS and self._outdated * 2 > len(heap):
            self._heap = heap = [item for item in heap if self._current(item)]
            heapify(heap)
            self._outdated = 0
        if at is None:
            return False
        # Sleepers still wait for an outdated first item; only `take` gives them a new time.
        earlier = not heap or at < heap[0][0]
        heappush(heap, (at, version, entry.job.id))
        return earlier

    def take(self, now: int, limit: int, until: int) -> tuple[list[Entry], int | None]:
        """Return due jobs, earliest first, and hide them; also return when the next other job is available."""
        if self._pages:
            self._show(now)
        heap, jobs = self._heap, self._jobs
        page: list[_Filed] = []
        taken: list[Entry] = []
        while heap and heap[0][0] <= now and len(page) < limit:
            item = heappop(heap)
            entry = jobs.get(item[2])
            if entry is not None and entry.version == item[1]:
                entry.filed = False
                page.append(item)
                taken.append(entry)
            else:
                self._outdated -= 1
        if heap:
            self._skip()
        next_at = heap[0][0] if heap else None
        pages = self._pages
        if pages and (next_at is None or pages[0][0] < next_at):
            next_at = pages[0][0]
        if page:
            page.reverse()
            heappush(pages, (until, page[-1][1], page))
        return taken, next_at

    def earliest(self) -> int | None:
        """Return the earliest run time of all jobs, hidden or not."""
        self._skip()
        times = [self._heap[0][0]] if self._heap else []
        times += [page[2][-1][0] for page in self._pages if self._trim(page[2])]
        return min(times, default=None)

    def _current(self, item: _Filed) -> bool:
        entry = self._jobs.get(item[2])
        return entry is not None and entry.version == item[1]

    def _show(self, now: int) -> None:
        """Drop the pages whose time is over, and those whose jobs have all been written since."""
        pages = self._pages
        while pages and (pages[0][0] <= now or not self._trim(pages[0][2])):
            for item in heappop(pages)[2]:
                if self._current(item):
                    self._jobs[item[2]].filed = True
                    heappush(self._heap, item)

    def _trim(self, page: list[_Filed]) -> bool:
        """Drop the outdated items at a page's end; return True if any items are left."""
        jobs = self._jobs
        while page:
            _, version, job_id = page[-1]
            entry = jobs.get(job_id)
            if entry is not None and entry.version == version:  # inline `_current`, because a page may be long
                return True
            page.pop()
        return False

    def _skip(self) -> None:
        heap, jobs = self._heap, self._jobs
        while heap:
            _, version, job_id = heap[0]
            entry = jobs.get(job_id)
            if entry is not None and entry.version == version:
                return
            heappop(heap)
            self._outdated -= 1


_Ready = tuple[int, int, int, str]  # -priority, run_at, number, run id
_Delayed = tuple[int, int, str]  # run_at, number, run id


class QueueLimit(msgspec.Struct, eq=False):
    """How many runs of a queue may run at once, over all its lanes, and how many do."""

    allowed: int
    running: int

    @property
    def full(self) -> bool:
        """Whether no further run of the queue may start now: it is at its limit, or paused."""
        return self.running >= self.allowed


class LaneIndex:
    """The waiting runs of one lane of a queue: due runs by urgency, the others by time."""

    __slots__ = ("_delayed", "_limits", "_outdated", "_ready", "_records", "queue")

    def __init__(self, records: Mapping[str, Record], queue: str, limits: Mapping[str, QueueLimit]) -> None:
        self._records, self.queue, self._limits = records, queue, limits
        self._ready: list[_Ready] = []
        self._delayed: list[_Delayed] = []
        self._outdated = 0

    @property
    def idle(self) -> bool:
        """Whether no run waits in the lane."""
        return not (self._ready or self._delayed)

    @property
    def limit(self) -> QueueLimit | None:
        """The limit of the lane's queue; None for most queues."""
        return self._limits.get(self.queue) if self._limits else None

    @property
    def full(self) -> bool:
        """Whether no further run of the lane's queue may start now."""
        limit = self.limit
        return limit is not None and limit.full

    def put(self, record: Record, number: int, now: int) -> bool:
        """File a waiting run; return True if a sleeper must wake earlier."""
        run = record.run
        record.number = number
        if run.run_at <= now:
            heappush(self._ready, (-run.priority, run.run_at, number, run.id))
            return not self.full
        earlier = not self._delayed or run.run_at < self._delayed[0][0]
        heappush(self._delayed, (run.run_at, number, run.id))
        return earlier and not self.full

    def discard(self, record: Record) -> None:
        """Remove a run that was not popped."""
        record.number = 0
        self._outdated += 1
        if self._outdated > MOST_OUTDATED_ITEMS and self._outdated * 2 > len(self._ready) + len(self._delayed):
            self._ready = [item for item in self._ready if self._current(item)]
            self._delayed = [item for item in self._delayed if self._current(item)]
            heapify(self._ready)
            heapify(self._delayed)
            self._outdated = 0

    def ripen(self, now: int) -> None:
        """Move the delayed runs that are due now to the due runs."""
        delayed = self._delayed
        while delayed and delayed[0][0] <= now:
            item = heappop(delayed)
            if self._current(item):
                run_at, number, run_id = item
                heappush(self._ready, (-self._records[run_id].run.priority, run_at, number, run_id))
            else:
                self._outdated -= 1

    def head(self) -> _Ready | None:
        """Return the most urgent item, or None."""
        ready, records = self._ready, self._records
        while ready:
            head = ready[0]
            record = records.get(head[3])  # inline `_current`, because this is the hot loop of a claim
            if record is not None and record.number == head[2]:
                return head
            heappop(ready)
            self._outdated -= 1
        return None

    def pop(self) -> Record:
        """Remove the run that `head` has just returned."""
        record = self._records[heappop(self._ready)[3]]
        record.number = 0
        return record

    def next_delayed(self) -> int | None:
        """Return when the next run comes due."""
        delayed = self._delayed
        while delayed:
            if self._current(delayed[0]):
                return delayed[0][0]
            heappop(delayed)
            self._outdated -= 1
        return None

    def waiting(self) -> list[Record]:
        """Return the runs that are due, in no order."""
        return [self._records[item[3]] for item in self._ready if self._current(item)]

    def delayed(self) -> list[Record]:
        """Return the runs that are not due yet, in no order."""
        return [self._records[item[2]] for item in self._delayed if self._current(item)]

    def _current(self, item: _Ready | _Delayed) -> bool:
        record = self._records.get(item[-1])
        return record is not None and record.number == item[-2]


def take_runs(lanes: Sequence[LaneIndex], now: int, limit: int, admit: Callable[[Record], bool]) -> list[Record]:
    """Take up to `limit` due runs out of several lanes, most urgent first; `admit` judges the runs that have a gate.

    When `admit` returns False, it has already filed the run elsewhere.
    """
    for lane in lanes:
        lane.ripen(now)
    # No two items are equal (their numbers differ), so a lane is never compared.
    heads = [(head, lane) for lane in lanes if not lane.full and (head := lane.head()) is not None]
    heapify(heads)
    taken: list[Record] = []
    passed_by = 0
    while heads and len(taken) < limit:
        lane = heads[0][1]
        queue_limit = lane.limit
        if queue_limit is not None and queue_limit.full:  # another lane of the queue took its last slot
            heappop(heads)
            continue
        record = lane.pop()
        if record.run.gate is None or admit(record):
            taken.append(record)
            if queue_limit is not None:
                queue_limit.running += 1
        else:
            passed_by += 1
            if passed_by == MOST_RUNS_PASSED_BY:
                break
        head = lane.head()
        if head is None:
            heappop(heads)
        elif len(heads) > 1:
            heapreplace(heads, (head, lane))
    return taken


def next_run_at(lanes: Sequence[LaneIndex], now: int) -> int | None:
    """Return when a waiting run of the lanes can be claimed: now, if one is due."""
    open_lanes = [lane for lane in lanes if not lane.full]
    if any(lane.head() is not None for lane in open_lanes):
        return now
    return min((at for lane in open_lanes if (at := lane.next_delayed()) is not None), default=None)


class History:
    """Finished runs in the order of their deletion, and the ids of runs deleted within the last hour.

    Runs whose policy has a retention are kept apart from the others, which are limited in number.
    """

    __slots__ = ("_current_items", "_expiring", "_finished", "_gone", "_gone_ids", "_records", "kept")

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records
        self._finished: deque[tuple[int, int, str]] = deque()  # when it finished, number, run id
        self._expiring: list[tuple[int, int, str]] = []  # a heap: until when it is kept, number, run id
        self._current_items = 0  # how many items of the heap are not outdated
        self._gone: deque[tuple[int, str]] = deque()
        self._gone_ids: dict[str, int] = {}
        self.kept = 0  # how many runs are limited in number

    def add(self, record: Record, number: int, now: int) -> None:
        """File a finished run."""
        retention = record.run.policy.retention
        if retention is None:
            record.number = number
            self._finished.append((now, number, record.run.id))
            self.kept += 1
        else:
            self._keep_until(record, number, now + int(retention * SECOND))

    def put_off(self, record: Record, number: int, now: int) -> None:
        """Keep a run past its retention for an hour more; until then it is not limited in number."""
        self.discard(record)
        self._keep_until(record, number, now + PUT_OFF_US)

    def _keep_until(self, record: Record, number: int, until: int) -> None:
        record.number = -number
        heappush(self._expiring, (until, -number, record.run.id))
        self._current_items += 1

    def discard(self, record: Record) -> None:
        """Remove a run; ignore one that was never filed."""
        number, record.number = record.number, 0
        if not number:
            return
        if number < 0:
            self._current_items -= 1
            if len(self._expiring) > 2 * self._current_items + MOST_OUTDATED_ITEMS:
                self._expiring = [item for item in self._expiring if self._current(item) is not None]
                heapify(self._expiring)
            return
        self.kept -= 1
        if len(self._finished) > 2 * self.kept + MOST_OUTDATED_ITEMS:
            self._finished = deque(item for item in self._finished if self._current(item) is not None)

    def pop_oldest(self) -> Record:
        """Remove the run that finished first of those limited in number; there must be one."""
        while True:
            _, number, run_id = self._finished.popleft()
            record = self._records.get(run_id)  # inline `_current`, because each ending run may call this
            if record is not None and record.number == number:
                record.number = 0
                self.kept -= 1
                return record

    def outdated(self, now: int, keep_for: int) -> Iterator[Record]:
        """Yield the runs that are past their retention; delete each before you ask for the next."""
        while self._finished and self._finished[0][0] + keep_for <= now:
            if (record := self._current(self._finished.popleft())) is not None:
                yield record
        while self._expiring and self._expiring[0][0] <= now:
            if (record := self._current(heappop(self._expiring))) is not None:
                yield record

    def _current(self, item: tuple[int, int, str]) -> Record | None:
        record = self._records.get(item[2])
        return record if record is not None and record.number == item[1] else None

    def remember(self, run_id: str, now: int) -> None:
        """Keep the id of a deleted run for an hour."""
        gone, ids = self._gone, self._gone_ids
        ids[run_id] = until = now + IDS_REMEMBERED_US
        gone.append((until, run_id))
        while gone[0][0] <= now or len(gone) > IDS_REMEMBERED:
            ended, old = gone.popleft()
            if ids.get(old) == ended:  # otherwise it was remembered again since
                del ids[old]

    def remembers(self, run_id: str, now: int) -> bool:
        """Return True if a run of this id was deleted within the last hour."""
        return self._gone_ids.get(run_id, 0) > now
