"""Find the shard of a job or a run, and ask several shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from mainspring.core.ids import FOLLOW_UP, pin

__all__ = ["SCRIPT_RUNS", "UNKNOWN", "Shard", "Shards", "pin"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_FIRED: Final = re.compile(r"(.+)@\d+@-?\d+(?::missed)?", re.DOTALL)
_TAG: Final = re.compile(r"[^{]*\{([^}]+)\}", re.DOTALL)
SCRIPT_RUNS: Final = 1000
"""One script call handles this many runs, in a few milliseconds of the server's time."""
UNKNOWN: Final = 2
"""A script's answer for a run that its shard does not have."""
RUN_SHARDS_CACHED: Final = 100_000
"""Remember the shards of at most this many runs whose ids point to other shards."""


class Shard(NamedTuple):
    """One shard's keys: the common prefix, and the two keys that the user may name."""

    prefix: str
    jobs: str
    times: str


class Shards:
    """All shards of a store. Their prefixes contain every name of the store, so no two stores share a key."""

    def __init__(self, name: str, number: int, jobs_key: str | None, times_key: str | None) -> None:
        # A store that is given the default names explicitly is the same store.
        plain = f"{{{_quoted(name)}:0}}:"
        jobs_key = None if jobs_key == f"{plain}jobs" else jobs_key
        times_key = None if times_key == f"{plain}run_times" else times_key
        chosen = f"/{_quoted(jobs_key or '', ':/')}/{_quoted(times_key or '', ':/')}" if jobs_key or times_key else ""
        self.all = [
            Shard(prefix, jobs_key or f"{prefix}jobs", times_key or f"{prefix}run_times")
            for prefix in (f"{{{_quoted(name)}:{index}{chosen}}}:" for index in range(number))
        ]
        # The channels of changes, and of ends of runs. The key of the same name counts the messages of its channel.
        self.channels = [f"{shard.prefix}wake" for shard in self.all]
        self.ends = [f"{shard.prefix}ends" for shard in self.all]
        self._turn = 0
        self._strays: dict[str, Shard] = {}

    def of_job(self, word: str) -> Shard:
        """Return the shard of a job, a unique key or a gate."""
        if len(self.all) == 1:
            return self.all[0]
        # As in Redis keys, the part in braces decides, so that ids can be kept together.
        tag = _TAG.match(word) if "{" in word else None
        return self.all[crc32((word if tag is None else tag[1]).encode()) % len(self.all)]

    def of_run(self, run_id: str) -> Shard:
        """Return the expected shard of a run: a fired run is with its job, a follow-up with the run before it."""
        if len(self.all) == 1:
            return self.all[0]
        if run_id in self._strays:
            return self._strays[run_id]
        first = run_id
        while "~" in first and (follow_up := FOLLOW_UP.search(first)):
            first = first[: follow_up.start()]
        fired = _FIRED.fullmatch(first)
        return self.of_job(first if fired is None else fired[1])

    def of_new_run(self, run_id: str, unique: str | None) -> Shard:
        """Return the shard for a new run; a run with a unique key goes to the shard of the key."""
        return self.of_run(run_id) if unique is None else self.of_job(unique)

    def found(self, run_ids: Sequence[str], shard: Shard) -> None:
        """Remember that these runs are in this shard, if their ids point to another."""
        if len(self.all) == 1:
            return
        for run_id in run_ids:
            if self.of_run(run_id) is not shard:
                if len(self._strays) >= RUN_SHARDS_CACHED:
                    self._strays.clear()
                self._strays[run_id] = shard

    def turn(self) -> list[Shard]:
        """Return all shards, starting one further at each call."""
        if len(self.all) == 1:
            return self.all
        self._turn = (self._turn + 1) % len(self.all)
        return self.all[self._turn :] + self.all[: self._turn]

    def ask(
        self,
        items: Sequence[Item],
        shard_of: Callable[[Item], Shard],
        act: Callable[[Shard, Sequence[Item]], Sequence[Answer]],
        batch: int = SCRIPT_RUNS,
    ) -> list[Answer]:
        """Let each shard act on its items, in batches; return the answers in the order of the items."""
        if len(self.all) == 1 and len(items) <= batch:
            return list(act(self.all[0], items)) if items else []
        parts: dict[Shard, list[int]] = {}
        for index, item in enumerate(items):
            parts.setdefault(shard_of(item), []).append(index)
        answers: dict[int, Answer] = {}
        for shard, indexes in parts.items():
            for first in range(0, len(indexes), batch):
                part = indexes[first : first + batch]
                answers.update(zip(part, act(shard, [items[index] for index in part]), strict=True))
        return [answers[index] for index in range(len(items))]

    def ask_for_runs(
        self,
        items: Sequence[Item],
        act: Callable[[Shard, Sequence[Item]], Sequence[int]],
        run_id: Callable[[Item], str] = str,
    ) -> list[int]:
        """Let shards act on runs; look in the other shards for runs that the expected shard does not have."""
        answers = self.ask(items, lambda item: self.of_run(run_id(item)), act)
        if len(self.all) == 1:
            return answers
        for shard in self.all:
            lost = [
                index
                for index, answer in enumerate(answers)
                if answer == UNKNOWN and self.of_run(run_id(items[index])) is not shard
            ]
            for first in range(0, len(lost), SCRIPT_RUNS):
                part = lost[first : first + SCRIPT_RUNS]
                for index, answer in zip(part, act(shard, [items[index] for index in part]), strict=True):
                    answers[index] = answer
                    if answer != UNKNOWN:
                        self.found([run_id(items[index])], shard)
        return answers


def _quoted(name: str, also: str = "") -> str:
    """Percent-encode the braces of a name, which would end a hash tag early, and the characters of `also`."""
    for character in f"%{{}}{also}":
        name = name.replace(character, f"%{ord(character):02X}")
    return name
