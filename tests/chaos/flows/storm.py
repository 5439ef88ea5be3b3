"""Random flows under limits, by processes that are killed at random: `python -m tests.chaos.flows.storm URL ...`.

The parent opens no store and starts no thread, so that forking, and killing what was forked, is safe.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray, RawValue
from pathlib import Path
from typing import Any, Final

from mainspring.codec import Codec, Keyring
from mainspring.core.run import UNFINISHED
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.errors import StoreLocked
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.opening import open_for_app
from mainspring.jobstores.redis import store as redis
from mainspring.jobstores.sqlalchemy import mariadb
from mainspring.jobstores.sqlalchemy.postgresql import dialect as postgresql
from mainspring.jobstores.sqlalchemy.sqlite import dialect as sqlite
from tests.chaos.flows.actors import (
    LIMITED_QUEUE,
    LIMITS,
    QUEUE_LIMIT,
    Log,
    Stop,
    act_as_enqueuer,
    act_as_observer,
    act_as_person,
    act_as_worker,
)
from tests.chaos.flows.reckoning import Logs, dump, reckon

ROOT: Final = Path(__file__).parents[3]
KEY: Final = "a key of the storm, long enough"
REST_SECONDS: Final = 120
"""At most so long it takes until nothing is left to do."""
PATIENCE_SECONDS: Final = 20
DRIVERS: Final = (sqlite, postgresql, mariadb, redis)
"""They are imported before anything is forked: it takes long."""
Act = Callable[[JobStore, random.Random, Log, Stop], None]


class Storm:
    """Processes that are started again whenever they were killed."""

    def __init__(self, url: str, folder: Path, seed: int, workers: int, enqueuers: int) -> None:
        self.url, self.folder, self.chance = url, folder, random.Random(seed)
        self._fork: Any = multiprocessing.get_context("fork")
        # An event has a lock, which a killed process may hold.
        self._closing, self._stopping = RawValue("i", 0), RawValue("i", 0)
        self._acts: list[tuple[Act, Any]] = [(act_as_worker, self._stopping)] * workers
        self._acts += [(act_as_enqueuer, self._closing)] * enqueuers + [(act_as_person, self._closing)]
        self._processes: list[BaseProcess] = []
        self.kills = 0
        self._looks = RawArray("i", len(self._acts))
        """How often each process has looked whether to stop."""

    def run(self, kills: int) -> int:
        """Let the storm rage for so many kills, then wait for rest; return the exit code of the reckoning."""
        self._finish(self._begin(_prepare, None))
        observer = self._begin(act_as_observer, self._stopping)
        self._processes = [self._begin(*act, number) for number, act in enumerate(self._acts)]
        for self.kills in range(1, kills + 1):
            number = self.chance.randrange(len(self._acts))
            self._await_looks(number, self.chance.randint(1, 8))
            time.sleep(self.chance.random() * 0.03)
            victim = self._processes[number]
            with contextlib.suppress(ProcessLookupError):  # one that found something wrong is gone
                os.kill(victim.pid or 0, signal.SIGKILL)
            victim.join()
            self._processes[number] = self._begin(*self._acts[number], number)
        self._closing.value = 1
        for process, (_, stop) in zip(self._processes, self._acts, strict=True):
            if stop is self._closing:
                self._finish(process)
        code = self._finish(self._begin(_wait_for_rest, None))
        self._stopping.value = 1
        for process in (*self._processes, observer):
            self._finish(process)
        return code or self._finish(self._begin(self._reckon, None))

    def _await_looks(self, number: int, looks: int) -> None:
        """Let a process work before it is killed, however slow the machine is."""
        enough, until = self._looks[number] + looks, time.monotonic() + PATIENCE_SECONDS
        while self._looks[number] < enough and time.monotonic() < until and self._processes[number].is_alive():
            time.sleep(0.005)

    def _begin(self, act: Act, stop: Any, number: int = -1) -> BaseProcess:
        seed = self.chance.getrandbits(32)
        process: BaseProcess = self._fork.Process(target=self._act, args=(act, seed, stop, number), daemon=True)
        process.start()
        return process

    def _finish(self, process: BaseProcess) -> int:
        process.join(REST_SECONDS + 30)
        return -1 if process.exitcode is None else process.exitcode

    def _act(self, act: Act, seed: int, stop: Any, number: int) -> None:
        def is_over() -> bool:
            if number >= 0:
                self._looks[number] += 1
            return stop is not None and bool(stop.value)

        log = Log(self.folder)
        store = open_for_app(self.url, "storm", codec=Codec(Keyring([KEY])))
        store.start(None, "default")
        try:
            persist(act, store, random.Random(seed), log, is_over)
        except Exception as error:
            log("wrong", act.__name__, repr(error).replace("\n", " "), traceback.format_exc().replace("\n", " | "))
            raise
        finally:
            store.shutdown()

    def _reckon(self, store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
        runs, logs = dump(store), Logs.read(self.folder)
        findings = reckon(runs, logs, store.stats().queues)
        edges = sum(len(run.after) for run in runs.values())
        refused = sum(run.refused is not None for run in runs.values())
        print(f"{len(runs):,} runs, {edges:,} edges, {refused:,} refused, {self.kills} kills", flush=True)
        for finding in findings:
            print(finding.line(), flush=True)
        if any(finding.wrong for finding in findings):
            os._exit(1)


def persist(act: Act, store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
    """Act, and begin anew after a lock that lasted too long: nothing was changed, and any program would go on."""
    while True:
        try:
            return act(store, chance, log, stop)
        except StoreLocked:
            continue


def _prepare(store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
    store.set_gate(f"{QUEUE_GATE}{LIMITED_QUEUE}", QUEUE_LIMIT)


def _wait_for_rest(store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
    for gate in LIMITS:  # the person may have been killed between lowering a number and lifting it
        store.set_gate(gate, None)
    until = time.monotonic() + REST_SECONDS
    while store.stats(RunQuery(status=UNFINISHED)).matching and time.monotonic() < until:
        time.sleep(0.1)
    store.set_gate(f"{QUEUE_GATE}{LIMITED_QUEUE}", None)


def rage(url: str, folder: Path, **options: int) -> tuple[int, str]:
    """Let a storm rage in a process of its own; return its exit code and what it said."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    program = [sys.executable, "-m", "tests.chaos.flows.storm", url, str(folder), *words]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def main() -> int:
    """Let a storm rage; print the invariants, return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--enqueuers", type=int, default=2)
    options = parser.parse_args()
    storm = Storm(options.url, options.folder, options.seed, options.workers, options.enqueuers)
    return storm.run(options.kills)


if __name__ == "__main__":
    sys.exit(main())
