"""The reckoning of a storm: the logs joined with what is in the store, one line for each invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mainspring.core.run import FINAL, Run, Status, bit_of
from mainspring.jobstores.base import JobStore, QueueInfo, RunQuery
from tests.chaos.check import Finding


class Logs(NamedTuple):
    """What the processes have written down, by the first word of each line."""

    lines: Mapping[str, list[list[str]]]

    @classmethod
    def read(cls, folder: Path) -> Logs:
        """Read all logs; a killed process may have left half a line."""
        found: dict[str, list[list[str]]] = {}
        for path in sorted(folder.glob("log-*")):
            for line in path.read_text().split("\n")[:-1]:
                word, *rest = line.split(" ")
                found.setdefault(word, []).append(rest)
        return cls(found)

    def of(self, word: str) -> list[list[str]]:
        """Return the lines that begin with a word."""
        return self.lines.get(word, [])


def reckon(runs: Mapping[str, Run], logs: Logs, queues: Iterable[QueueInfo]) -> list[Finding]:
    """Return what was promised, how often, and where a promise was broken."""
    tries = _tries(runs, logs)
    added = [run_id for ids in logs.of("added") for run_id in ids]
    ended = Counter(run_id for run_id, *_ in logs.of("ended"))
    edges = sum(len(run.after) for run in runs.values())
    early = [line for line in logs.of("early") if line[1] not in tries]
    unfinished = [
        f"{run.id} is {run.status}, waits {run.waits}, gate {run.gate}"
        for run in runs.values()
        if run.status not in FINAL
    ]
    counted = [str(queue) for queue in queues if queue.waiting or queue.delayed or queue.blocked or queue.running]
    return [
        Finding("F1  acknowledged and lost", len(added), [each for each in added if each not in runs]),
        Finding("F2  blocked, pending or running for ever", len(runs), unfinished),
        Finding("F3  started early", edges, [" ".join(line) for line in early]),
        Finding("F4  ended twice", len(runs), [each for each, n in ended.items() if n > 1 + tries[each]]),
        Finding("F5  ran though it should not, or the reverse", edges, list(_misjudged(runs, tries))),
        Finding("F6  above a limit", len(runs), [" ".join(line) for line in logs.of("over")]),
        Finding("F7  counted in a queue at rest", len(runs), counted),
        Finding("F8  answered or done wrongly", len(runs), [" ".join(line) for line in logs.of("wrong")]),
    ]


def _tries(runs: Mapping[str, Run], logs: Logs) -> Counter[str]:
    """Return how often each run may have been sent back: by itself, or with one that it comes after."""
    behind: dict[str, list[str]] = {}
    for run in runs.values():
        for after in run.after:
            behind.setdefault(after.id, []).append(run.id)
    tries: Counter[str] = Counter()
    for first, *_ in logs.of("sent_back"):
        seen, ahead = {first}, [first]
        while ahead:
            new = set(behind.get(ahead.pop(), ())) - seen
            seen |= new
            ahead += new
        tries.update(seen)
    return tries


def _misjudged(runs: Mapping[str, Run], tries: Counter[str]) -> Iterable[str]:
    for run in runs.values():
        masks = {after.id: after.on for after in run.after}
        ran = run.status in (Status.SUCCEEDED, Status.FAILED)
        for before, mask in masks.items():
            found = runs.get(before)
            if found is None:
                yield f"{run.id} came after {before}, which is gone"
            elif ran and not tries[before] and found.status in FINAL and not mask & bit_of(found.status):
                yield f"{run.id} is {run.status} though {before} is {found.status}"
        by = runs.get(run.refused or "")
        if run.status is not Status.CANCELLED or by is None or tries[by.id] or by.status not in FINAL:
            continue
        if masks.get(by.id, 0) & bit_of(by.status):
            yield f"{run.id} was cancelled because of {by.id}, which is {by.status}"


def dump(store: JobStore) -> dict[str, Run]:
    """Read all runs."""
    found: dict[str, Run] = {}
    page: list[Run] = []
    while page := store.find_runs(RunQuery(), after=page[-1] if page else None, limit=1000):
        found.update((run.id, run) for run in page)
    return found
