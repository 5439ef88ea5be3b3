"""Keep nodes, acts of people and counts in a store of run records; delete and prune runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mainspring.core.insight.acts import MOST_ACTS
from mainspring.core.insight.metrics import (
    KINDS,
    LEVELS,
    MOST_NAMES,
    Tally,
    add_cells,
    oldest_kept,
    pack_cells,
    unpack_cells,
)
from mainspring.core.instants import SECOND
from mainspring.core.lanes import lanes_of, queue_of
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.records.rows import FINAL_VALUES, new_version
from mainspring.jobstores.run_records.changing import CHANGE_TRIES
from mainspring.jobstores.run_records.records import RunRecord, StoreNote, Want, is_counted
from mainspring.jobstores.run_records.settling import RunSettling
from mainspring.jobstores.values import IDS_REMEMBERED_US, NodeInfo, QueueInfo

__all__ = ["RunService"]

PINNED_US: Final = 3600 * SECOND
"""An expired run that a successor needs is kept for this much longer, then judged again."""
_HEAD_CHARS: Final = 20
"""The length of the first part of a tally's note name: level, kind and time; the tally's own name follows."""
_KIND_CHARS: Final = 2
"""The length of the part for level and kind."""


class RunService(RunSettling):
    """The verbs for nodes, acts, tallies and queues, and those that delete and prune runs."""

    keep_runs: int

    # -- forgetting --------------------------------------------------------------------------------------------

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        found = self.records.get(list(dict.fromkeys(run_ids))) if run_ids else {}
        return self._delete([each for each in found.values() if each.row.status in FINAL_VALUES])

    def _delete(self, records: Sequence[RunRecord]) -> int:
        """Delete finished runs and the edges to and from them; return how many runs were deleted."""
        if not records:
            return 0
        busy = [each for each in records if each.todo_at is not None]
        if busy:  # do the steps that are left before the records that list them are gone
            self._finish(busy)
            again = self.records.get([each.row.id for each in busy])
            records = [each for each in records if each.todo_at is None]
            records += [each for each in again.values() if each.todo_at is None and each.row.status in FINAL_VALUES]
        marks = [(each.row.id, each.version) for each in records]
        done = self.records.remove(marks, self._now() + IDS_REMEMBERED_US)
        gone = [each for each, deleted in zip(records, done, strict=True) if deleted]
        self._cut_before({each.row.id: (each.after, each.mark) for each in gone if each.after})
        self._cut_behind(gone)
        return len(gone)

    def prune(self, limit: int = 1000) -> int:
        """Finish the changes that dead nodes left unfinished, then delete finished runs by age and number."""
        self._finish(self.records.find(Want(todo_until=self._now()), "newest", limit))
        self._fill(self.records.count(Want(status=("blocked",), parked=True), "gate"))
        now = self._now()
        self._forget_gates(now, limit)
        old = self.records.find(Want(expires_until=now), "expires", limit)
        pinned = self._pinned(old)
        over = [each for each in old if each.row.id not in pinned]
        self._put_off(pinned, now)
        surplus = self.records.count(Want(counted=True))[""] - sum(map(is_counted, over)) - self.keep_runs
        chosen = {each.row.id for each in over} | pinned
        skip = 0
        while surplus > 0 and len(over) < limit:
            page = self.records.find(Want(counted=True), "expires", limit, skip)
            skip += len(page)
            free = [each for each in page if each.row.id not in chosen]
            needed = self._pinned(free)
            free = [each for each in free if each.row.id not in needed][: min(surplus, limit - len(over))]
            over += free
            surplus -= len(free)
            if len(page) < limit:
                break
        return self._delete(over)

    def _put_off(self, run_ids: set[str], now: int) -> None:
        def later(record: RunRecord) -> RunRecord | None:
            at = record.expires_at
            if at is None or at > now:
                return None
            return replace(record, expires_at=((now + PINNED_US) & -2) | (at & 1))

        self._change(run_ids, later)

    # -- nodes and queues --------------------------------------------------------------------------------------

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        now = self._now()
        if node is None:
            return now
        old = self.records.notes("node", names=[node.id])
        if ttl <= 0:
            self.records.drop_notes(old)
            return now
        data = msgspec.json.encode(replace(node, beat_at=now))
        new = StoreNote("node", node.id, new_version(), data, until=now + int(ttl * SECOND))
        self.records.put_notes([(new, old[0].version if old else None)])  # nobody else writes this node
        return now

    def nodes(self) -> list[NodeInfo]:
        now, found = self._now(), self.records.notes("node")
        living, dead = ([note for note in found if (note.until > now) is alive] for alive in (True, False))
        if dead:
            self.records.drop_notes(dead)
        return sorted((msgspec.json.decode(note.data, type=NodeInfo) for note in living), key=lambda node: node.id)

    def _queues(self, numbers: Mapping[str, int]) -> list[QueueInfo]:
        """Return the queues that have unfinished runs or a limit."""
        now, count = self._now(), self.records.count
        due = _by_queue(count(Want(status=("pending",), run_until=now), "queue"))
        pending = _by_queue(count(Want(status=("pending",)), "queue"))
        blocked, running = (_by_queue(count(Want(status=(each,)), "queue")) for each in ("blocked", "running"))
        limits = {
            name.removeprefix(QUEUE_GATE): number for name, number in numbers.items() if name.startswith(QUEUE_GATE)
        }
        return [
            QueueInfo(
                name=name,
                waiting=due[name],
                delayed=max(0, pending[name] - due[name]),
                blocked=blocked[name],
                running=running[name],
                limit=limits.get(name),
                oldest_at=self._oldest(name, now) if due[name] else None,
            )
            for name in sorted({*pending, *blocked, *running, *limits})
        ]

    def _oldest(self, queue: str, now: int) -> int | None:
        first = self.records.find(Want(status=("pending",), queues=lanes_of(queue), run_until=now), "run_at", 1)
        return first[0].row.run_at if first else None

    # -- acts --------------------------------------------------------------------------------------------------

    def _add_act_rows(self, rows: Sequence[ActRow], oldest: str) -> None:
        notes = [StoreNote("act", row.id, new_version(), row.frame, row.about) for row in rows]
        self.records.put_notes([(note, None) for note in notes])
        self.records.drop_notes(self.records.notes("act", before=oldest))
        self.records.drop_notes(self.records.notes("act", skip=MOST_ACTS))

    def _find_act_rows(self, about: str | None, after: str | None, limit: int) -> list[ActRow]:
        found = self.records.notes("act", tag=about, before=after, limit=limit)
        return [ActRow(note.name, note.tag, note.data) for note in found]

    # -- tallies -----------------------------------------------------------------------------------------------

    def tallies(self, new: Sequence[Tally] = (), **wanted: Any) -> list[Tally]:
        if new:
            self._add_tallies(new)
        return self._find_tallies(**wanted)

    def _add_tallies(self, tallies: Sequence[Tally]) -> None:
        """Add counts; add those of names beyond the limit under the empty name; delete counts that are too old."""
        wanted: dict[str, dict[int, int]] = {}
        for tally in tallies:
            add_cells(wanted.setdefault(_head(tally.kind, tally.level, tally.at) + tally.name, {}), tally.cells)
        known = {note.name: note for note in self.records.notes("tally", names=list(wanted))}
        for head in sorted({each[:_HEAD_CHARS] for each in wanted if each not in known}):
            self._limit_names(head, wanted, known)
        begun = {name[:_KIND_CHARS] for name in wanted if name not in known}
        for _ in range(CHANGE_TRIES):
            writes = [(_added(name, cells, known.get(name)), known.get(name)) for name, cells in wanted.items()]
            done = self.records.put_notes([(new, None if old is None else old.version) for new, old in writes])
            left = [new.name for (new, _), won in zip(writes, done, strict=True) if not won]
            if not left:
                break
            found = {note.name: note for note in self.records.notes("tally", names=left)}
            written = {new.name: new.version for new, _ in writes}
            # A note that has the new version was written, even if the answer said otherwise.
            known = {name: note for name, note in found.items() if note.version != written[name]}
            wanted = {name: wanted[name] for name in left if name in known or name not in found}
        else:
            raise StoreUnavailable("other nodes changed the counts before each attempt to add to them")
        self._forget_tallies(begun)

    def _limit_names(self, head: str, wanted: dict[str, dict[int, int]], known: dict[str, StoreNote]) -> None:
        new = sorted(each for each in wanted if each.startswith(head) and each not in known and each != head)
        if not new:
            return
        number = sum(note.name != head for note in self.records.notes("tally", since=head, before=_after(head)))
        for excess in new[max(0, MOST_NAMES - number) :]:
            add_cells(wanted.setdefault(head, {}), wanted.pop(excess))
        if head in wanted and head not in known:
            known |= {note.name: note for note in self.records.notes("tally", names=[head])}

    def _forget_tallies(self, begun: set[str]) -> None:
        """Delete old stretches, but only for levels and kinds in which a new stretch has begun, which is rare."""
        now = self._now()
        for start in sorted(begun):
            level, kind = int(start[0]), KINDS[int(start[1])]
            oldest = oldest_kept(level, now)
            if oldest is not None:
                old = self.records.notes("tally", since=_head(kind, level, 0), before=_head(kind, level, oldest))
                self.records.drop_notes(old)

    def _find_tallies(
        self, kind: str = "all", name: str | None = None, level: int = 0, since: int = 0, until: int = 0
    ) -> list[Tally]:
        """Read the tallies of a kind, oldest first."""
        if until <= since:
            return []
        stretch = LEVELS[level].stretch
        first, last = since // stretch * stretch, -(-until // stretch) * stretch
        found = self.records.notes("tally", since=_head(kind, level, first), before=_head(kind, level, last))
        tallies = [
            Tally(kind, note.name[_HEAD_CHARS:], level, int(note.name[2:_HEAD_CHARS]), unpack_cells(note.data))
            for note in reversed(found)
        ]
        return [tally for tally in tallies if name in (None, tally.name)]


def _by_queue(lanes: Counter[str]) -> Counter[str]:
    """Add up the numbers of the lanes of each queue."""
    queues: Counter[str] = Counter()
    for lane, number in lanes.items():
        queues[queue_of(lane)] += number
    return queues


def _added(name: str, cells: dict[int, int], old: StoreNote | None) -> StoreNote:
    before = {} if old is None else unpack_cells(old.data)
    return StoreNote("tally", name, new_version(), pack_cells(add_cells(before, dict(cells))))


def _head(kind: str, level: int, at: int) -> str:
    return f"{level}{KINDS.index(kind)}{max(0, at):018d}"


def _after(head: str) -> str:
    """Return the head of the next instant, which sorts after every name with this head."""
    return f"{head[:2]}{int(head[2:]) + 1:018d}"
