"""The producer: enqueues numbered runs, at a rate that the workers can follow, whatever happens to it or the store."""

from __future__ import annotations

import argparse
import os
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mainspring.app.declaring.task import TaskCall
from mainspring.core.instants import to_us
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from tests.chaos import jobs
from tests.chaos.ledger import BEGIN, ENQUEUED, PROPOSE, UNKNOWN, Reader

BATCH = 20
AHEAD = 200
"""How many runs may wait."""
KINDS: list[tuple[Any, int]] = [
    (jobs.ok, 800),
    (jobs.flaky, 50),
    (jobs.failing, 20),
    (jobs.slow, 30),
    (jobs.nap, 40),
    (jobs.parent, 20),
    (jobs.once, 20),
    (jobs.later, 17),
    (jobs.long, 2),
    (jobs.crash, 1),
]


def call(number: int, seed: int) -> TaskCall[Any]:
    """Make the call of a number: always the same for the same seed."""
    chance = random.Random(f"{seed}:{number}")
    task = chance.choices([task for task, _ in KINDS], [weight for _, weight in KINDS])[0]
    options: dict[str, Any] = {"id": name_of(number), "priority": chance.choice([0, 0, 0, 5])}
    if task is jobs.later:
        at = datetime.now(UTC) + timedelta(seconds=chance.uniform(0.2, 3))
        return task.options(at=at, **options).call(to_us(at))
    return task.options(**options).call(number)  # type: ignore[no-any-return]


def name_of(number: int) -> str:
    """Name a run."""
    return f"run{number:07d}"


def left_over(runs: int) -> list[int]:
    """Return the numbers to enqueue: those a producer before us has not got to, and half of its last ones.

    Of what it proposed without an answer, odd numbers stay unknown for ever; even ones are proposed again.
    """
    proposed: set[str] = set()
    acknowledged: set[str] = set()
    for record in Reader(Path(os.environ["CHAOS_FOLDER"])).fresh():
        if record.kind == PROPOSE:
            proposed.add(record.id)
        elif record.kind == ENQUEUED:
            acknowledged.add(record.id)
    return [n for n in range(runs) if (name := name_of(n)) not in acknowledged and not (n % 2 and name in proposed)]


def enqueue(calls: list[TaskCall[Any]]) -> None:
    """Enqueue until it is acknowledged: repeating with the same ids is safe."""
    names = [str(each.options.id) for each in calls]
    jobs.ledger.write(PROPOSE, [(name, 0, None, 0) for name in names])
    while True:
        try:
            if len(calls) == 1:
                jobs.app.enqueue_call(calls[0])
            else:
                jobs.app.enqueue_many(calls)
        except OutcomeUnknown:
            jobs.ledger.write(UNKNOWN, [(name, 0, None, 0) for name in names])
        except StoreUnavailable:
            pass
        else:
            jobs.ledger.write(ENQUEUED, [(name, 0, None, 0) for name in names])
            return
        time.sleep(0.2)


def wait_for_room() -> None:
    """Let the workers catch up."""
    while True:
        try:
            if sum(queue.waiting for queue in jobs.app.queues()) < AHEAD:
                return
        except StoreUnavailable:
            pass
        time.sleep(0.05)


def main() -> None:
    """Enqueue what is left to enqueue."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=int)
    parser.add_argument("seed", type=int)
    options = parser.parse_args()
    jobs.ledger.note(BEGIN, "producer")
    numbers = left_over(options.runs)
    chance = random.Random(f"{options.seed}:{numbers[:1]}")
    position = 0
    while position < len(numbers):
        wait_for_room()
        size = chance.choice([1, 1, 1, BATCH, BATCH])
        enqueue([call(number, options.seed) for number in numbers[position : position + size]])
        position += size
    jobs.app.close()


if __name__ == "__main__":
    main()
