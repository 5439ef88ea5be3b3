"""What the memory store finds things by: jobs by time, waiting runs by urgency, finished runs by age.

Heaps are never searched. An item carries the number under which it was filed; when its owner has another number by
now, the item is outdated, skipped when it comes up, and swept out when more than half of a heap is outdated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from mainspring.clock import SECOND
from mainspring.job import Job
from mainspring.plan import Miss
from mainspring.run import Run

__all__ = ["Entry", "History", "Lane", "Record", "Timetable", "next_run_at", "take_runs"]

SLACK = 64
"""Outdated items that are not worth a sweep."""
REMEMBERED_FOR = 3600 * SECOND
REMEMBERED = 100_000


class Entry:
    """A stored job: the store's own copy of it, and what the store knows besides."""

    __slots__ = ("filed", "job", "miss", "unfinished", "version")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.version = 0  # 0: not in the store any more
        self.filed = False  # whether the heap holds an item of this version
        self.unfinished = 0
        self.miss: Miss | None = None


class Record:
    """A stored run; `owner` is the job that its unfinished runs are counted for."""

    __slots__ = ("number", "owner", "run")

    def __init__(self, run: Run, owner: Entry | None) -> None:
        self.run = run
        self.owner = owner
        self.number = 0  # of the item that is valid in a lane or in the history


_Filed = tuple[int, int, Entry]  # run time, version
_Page = tuple[int, int, list[_Filed]]  # hidden until, version of its first job; the earliest job is the last


class Timetable:
    """Jobs by next run time, and the pages of them that are hidden from other schedulers."""

    __slots__ = ("_heap", "_outdated", "_pages")

    def __init__(self) -> None:
        self._heap: list[_Filed] = []
        self._pages: list[_Page] = []
        self._outdated = 0

    def put(self, entry: Entry, at: int | None, version: int) -> bool:
        """File a job under its new version and time (None: nowhere); tell whether a sleeper may now sleep too long."""
        if entry.filed:
            self._outdated += 1
        entry.version = version
        entry.filed = at is not None
        heap = self._heap
        if self._outdated > SLACK and self._outdated * 2 > len(heap):
            self._heap = heap = [item for item in heap if item[2].version == item[1]]
            heapify(heap)
            self._outdated = 0
        if at is None:
            return False
        # An outdated first item is still what the sleepers were told, and only `take` and `earliest` tell them anew.
        earlier = not heap or at < heap[0][0]
        heappush(heap, (at, version, entry))
        return earlier

    def take(self, now: int, limit: int, until: int) -> tuple[list[Entry], int | None]:
        """Hand out due jobs, earliest first, hide them, and say when the next of the others can be had."""
        self._show(now)
        heap = self._heap
        page: list[_Filed] = []
        while heap and heap[0][0] <= now and len(page) < limit:
            item = heappop(heap)
            entry = item[2]
            if entry.version == item[1]:
                entry.filed = False
                page.append(item)
            else:
                self._outdated -= 1
        self._skip()
        times = [heap[0][0]] if heap else []
        if self._pages:
            times.append(self._pages[0][0])
        if page:
            page.reverse()
            heappush(self._pages, (until, page[-1][1], page))
        return [item[2] for item in reversed(page)], min(times, default=None)

    def earliest(self) -> int | None:
        """Return the earliest run time of all jobs, hidden or not."""
        self._skip()
        times = [self._heap[0][0]] if self._heap else []
        times += [page[2][-1][0] for page in self._pages if _trim(page[2])]
        return min(times, default=None)

    def _show(self, now: int) -> None:
        """Let go of the pages whose time is over, and of those whose jobs have all been written since."""
        pages = self._pages
        while pages and (pages[0][0] <= now or not _trim(pages[0][2])):
            for item in heappop(pages)[2]:
                if item[2].version == item[1]:
                    item[2].filed = True
                    heappush(self._heap, item)

    def _skip(self) -> None:
        heap = self._heap
        while heap and heap[0][2].version != heap[0][1]:
            heappop(heap)
            self._outdated -= 1


def _trim(page: list[_Filed]) -> bool:
    """Drop the outdated items at a page's end; tell whether any are left."""
    while page and page[-1][2].version != page[-1][1]:
        page.pop()
    return bool(page)


_Ready = tuple[int, int, int, Record]  # -priority, run_at, number
_Delayed = tuple[int, int, Record]  # run_at, number


class Lane:
    """The waiting runs of one queue: those that are due by urgency, the others by time."""

    __slots__ = ("_delayed", "_outdated", "_ready", "paused")

    def __init__(self) -> None:
        self._ready: list[_Ready] = []
        self._delayed: list[_Delayed] = []
        self._outdated = 0
        self.paused = False

    def __bool__(self) -> bool:
        return bool(self._ready or self._delayed or self.paused)

    def put(self, record: Record, number: int, now: int) -> bool:
        """File a waiting run; tell whether a sleeper may now sleep too long."""
        run = record.run
        record.number = number
        if run.run_at <= now:
            heappush(self._ready, (-run.priority, run.run_at, number, record))
            return not self.paused
        earlier = not self._delayed or run.run_at < self._delayed[0][0]
        heappush(self._delayed, (run.run_at, number, record))
        return earlier and not self.paused

    def discard(self, record: Record) -> None:
        """Take a run out that was not popped."""
        record.number = 0
        self._outdated += 1
        if self._outdated > SLACK and self._outdated * 2 > len(self._ready) + len(self._delayed):
            self._ready = [item for item in self._ready if item[3].number == item[2]]
            self._delayed = [item for item in self._delayed if item[2].number == item[1]]
            heapify(self._ready)
            heapify(self._delayed)
            self._outdated = 0

    def ripen(self, now: int) -> None:
        """Move the runs whose time has come to those that are due."""
        delayed = self._delayed
        while delayed and delayed[0][0] <= now:
            run_at, number, record = heappop(delayed)
            if record.number == number:
                heappush(self._ready, (-record.run.priority, run_at, number, record))
            else:
                self._outdated -= 1

    def head(self) -> _Ready | None:
        """Return the most urgent item, or None."""
        ready = self._ready
        while ready:
            head = ready[0]
            if head[3].number == head[2]:
                return head
            heappop(ready)
            self._outdated -= 1
        return None

    def pop(self) -> Record:
        """Take out the run that `head` has just shown."""
        record = heappop(self._ready)[3]
        record.number = 0
        return record

    def next_delayed(self) -> int | None:
        """Return when the next run that is not due yet will be."""
        delayed = self._delayed
        while delayed:
            if delayed[0][2].number == delayed[0][1]:
                return delayed[0][0]
            heappop(delayed)
            self._outdated -= 1
        return None

    def waiting(self) -> list[Record]:
        """Return the runs that are due, in no order."""
        return [item[3] for item in self._ready if item[3].number == item[2]]

    def delayed(self) -> list[Record]:
        """Return the runs that are not due yet, in no order."""
        return [item[2] for item in self._delayed if item[2].number == item[1]]


def take_runs(lanes: Sequence[Lane], now: int, limit: int) -> list[Record]:
    """Take up to `limit` due runs out of several lanes, most urgent first."""
    for lane in lanes:
        lane.ripen(now)
    # No two items are equal (their numbers differ), so a lane is never compared.
    heads = [(head, lane) for lane in lanes if (head := lane.head()) is not None]
    heapify(heads)
    taken: list[Record] = []
    while heads and len(taken) < limit:
        lane = heads[0][1]
        taken.append(lane.pop())
        head = lane.head()
        if head is None:
            heappop(heads)
        else:
            heapreplace(heads, (head, lane))
    return taken


def next_run_at(lanes: Sequence[Lane], now: int) -> int | None:
    """Return when a waiting run of the lanes can be claimed: now, if one is due."""
    if any(lane.head() is not None for lane in lanes):
        return now
    return min((at for lane in lanes if (at := lane.next_delayed()) is not None), default=None)


class History:
    """Finished runs in the order they finished, and the ids of those that were deleted within the last hour."""

    __slots__ = ("_finished", "_gone", "_gone_ids", "kept")

    def __init__(self) -> None:
        self._finished: deque[tuple[int, int, Record]] = deque()  # number, when it finished
        self._gone: deque[tuple[int, str]] = deque()
        self._gone_ids: dict[str, int] = {}
        self.kept = 0

    def add(self, record: Record, number: int, now: int) -> None:
        """File a finished run."""
        record.number = number
        self._finished.append((number, now, record))
        self.kept += 1

    def discard(self, record: Record) -> None:
        """Take a run out; one that was never filed is left alone."""
        if not record.number:
            return
        record.number = 0
        self.kept -= 1
        if len(self._finished) > 2 * self.kept + SLACK:
            self._finished = deque(item for item in self._finished if item[2].number == item[0])

    def oldest(self) -> Record:
        """Return the run that finished first; there must be one."""
        while True:
            number, _, record = self._finished[0]
            if record.number == number:
                return record
            self._finished.popleft()

    def outdated(self, now: int, keep_for: int) -> Iterator[Record]:
        """Yield the runs that are past their retention."""
        for number, finished, record in self._finished:
            if record.number == number:
                own = record.run.policy.retention
                if finished + (keep_for if own is None else int(own * SECOND)) <= now:
                    yield record

    def remember(self, run_id: str, now: int) -> None:
        """Keep the id of a deleted run for an hour."""
        gone, ids = self._gone, self._gone_ids
        ids[run_id] = until = now + REMEMBERED_FOR
        gone.append((until, run_id))
        while gone[0][0] <= now or len(gone) > REMEMBERED:
            ended, old = gone.popleft()
            if ids.get(old) == ended:  # else it was remembered again since
                del ids[old]

    def remembers(self, run_id: str, now: int) -> bool:
        """Tell whether a run of this id was deleted within the last hour."""
        return self._gone_ids.get(run_id, 0) > now
