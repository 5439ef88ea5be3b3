"""Worker processes that take jobs until none is left: `python -m tests.tracker.drainer URL HOLD...`, one for each HOLD.

One with a HOLD above 0 stops in the middle of its job of that number and waits to be killed. The others pause after
GATE jobs until the standard input is closed, so that enough is left for those. All say what happens: `started WORKER
PID`, `held WORKER JOB`, `ended WORKER STATUS`.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback

from sqlalchemy import create_engine, event, func
from sqlalchemy.engine import Engine

from mainspring.tracker import JobLockedError
from tests.tracker.kit import Drained, DrainStep

GATE = 200


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # at once, so that lines do not mix


def drain(engine: Engine, worker: int, hold: int) -> None:
    done = 0
    while work := DrainStep.start_next(engine):
        done += 1
        if done == GATE and not hold:
            os.read(0, 1)
        try:
            with work as (job, updates):
                # Counted by the very UPDATE that marks the job succeeded, so a second success would show.
                updates.set("successes", func.coalesce(Drained.successes, 0) + 1)
                updates.set("data", {"attempts": job.retry + 1})
                if done == hold:
                    say("held", worker, job.id)
                    signal.pause()
        except JobLockedError:
            pass
    engine.dispose()


def fork(engine: Engine, worker: int, hold: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            drain(engine, worker, hold)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def main(url: str, holds: list[int]) -> None:
    # Forked after the imports, which cost more than all else, and before the first connection.
    engine = create_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {})
    if engine.dialect.name == "sqlite":
        # Nothing that dies here takes the disk with it.
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    workers: dict[int, int] = {}
    for worker, hold in enumerate(holds):
        pid = fork(engine, worker, hold)
        workers[pid] = worker
        say("started", worker, pid)
    while workers:
        pid, status = os.wait()
        say("ended", workers.pop(pid), status)


if __name__ == "__main__":
    main(sys.argv[1], [int(hold) for hold in sys.argv[2:]])
