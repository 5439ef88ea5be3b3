"""Nodes, gates, acts of people and counters in Redis, and waiting for changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from mainspring.core.insight.acts import MOST_ACTS
from mainspring.core.insight.metrics import KINDS, LEVELS, MOST_NAMES, Tally, unpack_cells
from mainspring.core.instants import SECOND
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import CHANGES, ENDS, NodeInfo
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.redis.calls import RedisCalls
from mainspring.jobstores.redis.wire import or_false, raw

__all__ = ["RedisService"]

TALLIES_PER_SCRIPT: Final = 200
"""One script call adds this many tallies."""
MOST_STRETCHES: Final = 2000
"""One call reads at most this many stretches of time, the newest ones."""


class RedisService(RedisCalls):
    """The verbs that concern neither jobs nor runs; the first shard keeps the nodes, acts and counters."""

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        """Announce or remove a node; return the current time by the first shard's server."""
        if node is None:
            return int(self._call(self._shards.all[0], "beat", reads=True))
        said = [node.id, int(ttl * SECOND), msgspec.json.encode(node).decode()]
        return int(self._call(self._shards.all[0], "beat", said))

    def nodes(self) -> list[NodeInfo]:
        """Return the living nodes; skip an altered record, which the node's next heartbeat replaces."""
        found = []
        for said, beat_at in zip(*self._call(self._shards.all[0], "nodes", reads=True), strict=True):
            if said is not None and beat_at is not None:
                with suppress(msgspec.MsgspecError, ValueError, OverflowError):
                    node = msgspec.json.decode(said, type=NodeInfo)
                    found.append(msgspec.structs.replace(node, beat_at=int(float(beat_at))))
        return sorted(found, key=lambda node: node.id)

    def set_gate(self, name: str, allowed: int | None) -> None:
        """Let at most `allowed` runs of a gate run at once; the limit of a queue is split over the shards."""
        if not name.startswith(QUEUE_GATE):
            self._call(self._shards.of_job(name), "set_gate", [False, name, or_false(allowed)])
            return
        shards, queue = self._shards.all, name.removeprefix(QUEUE_GATE)
        if allowed is not None and 0 < abs(allowed) < len(shards):
            raise ConfigurationError(
                f"a queue in a store of {len(shards)} shards has a limit of at least {len(shards)}, not "
                f"{abs(allowed)}: each shard hands out its part"
            )
        for number, shard in enumerate(shards):
            part: int | bool = False
            if allowed is not None:
                whole, rest = divmod(abs(allowed), len(shards))
                part = (whole + (number < rest)) * (1 if allowed > 0 else -1)
            self._call(shard, "set_gate", [True, queue, part])

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        if topic == ENDS:
            if timeout > 0:
                return self._ends.wait(self._shards.ends, cursor, timeout)
            self._ends.close()
            return cursor
        return self._subscriptions.wait(self._shards.channels, cursor, timeout)

    def shift_clock(self, seconds: float) -> None:
        for shard in self._shards.all:
            self._call(shard, "shift_clock", [int(seconds * SECOND)])

    def _add_act_rows(self, rows: Sequence[ActRow], oldest: str) -> None:
        plain = [[row.id, row.about, raw(row.frame)] for row in rows]
        self._call(self._shards.all[0], "add_acts", [plain, MOST_ACTS, oldest])

    def _find_act_rows(self, about: str | None, after: str | None, limit: int) -> list[ActRow]:
        args = [about or False, after or False, limit]
        ids, said = self._call(self._shards.all[0], "find_acts", args, reads=True)
        found = [(act_id.decode(), *each.partition(b"\0")[::2]) for act_id, each in zip(ids, said, strict=True) if each]
        return [ActRow(act_id, thing.decode("utf-8", "replace"), frame) for act_id, thing, frame in found]

    def tallies(self, new: Sequence[Tally] = (), **wanted: Any) -> list[Tally]:
        plain = [
            [
                _stretch_text(tally.kind, tally.level, tally.at),
                _ends(tally.level, tally.at),
                tally.name,
                [number for pair in tally.cells.items() for number in pair],
            ]
            for tally in new
        ]
        for first in range(0, len(plain), TALLIES_PER_SCRIPT):
            self._call(self._shards.all[0], "add_tallies", [plain[first : first + TALLIES_PER_SCRIPT], MOST_NAMES])
        return self._find_tallies(**wanted)

    def _find_tallies(
        self, kind: str = "all", name: str | None = None, level: int = 0, since: int = 0, until: int = 0
    ) -> list[Tally]:
        """Read the tallies of a kind, oldest first."""
        if until <= since:
            return []
        stretch = LEVELS[level].stretch
        last = -(-until // stretch) * stretch
        times = range(max(since // stretch * stretch, last - MOST_STRETCHES * stretch), last, stretch)
        texts = [_stretch_text(kind, level, at) for at in times]
        found = self._call(self._shards.all[0], "find_tallies", [texts, or_false(name)], reads=True)
        return [
            Tally(kind, named.decode("utf-8", "replace"), level, at, unpack_cells(cells))
            for at, pairs in zip(times, found, strict=True)
            for named, cells in sorted(zip(pairs[::2], pairs[1::2], strict=True))
        ]


def _stretch_text(kind: str, level: int, at: int) -> str:
    return f"{level}{KINDS.index(kind)}{at:018d}"


def _ends(level: int, at: int) -> int | bool:
    """Return the Unix time in seconds at which a stretch expires; False if it is kept for ever."""
    _, stretch, keep = LEVELS[level]
    return False if keep is None else max(1, (at + stretch + keep) // SECOND)
