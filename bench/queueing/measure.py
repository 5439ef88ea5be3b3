"""One measurement of one contender: a client that enqueues, workers, and what they cost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench.queueing.contenders import ROOT, Contender
from bench.queueing.notes import Counted, read_counted
from bench.stores import Bed, process_cpu

PATIENCE = 30.0
LAST_WORDS = 6
PAGE = os.sysconf("SC_PAGE_SIZE")


LOOPS = ("mainspring-work", "mainspring-monitor", "mainspring-listen")
"""The threads that claim and settle."""
LAYERS: dict[str, tuple[str, ...]] = {
    "claim: store": ("_claim_rows",),
    "claim: decode": ("store.claim", "-_claim_rows"),
    "begin: hand to the threads": ("submit",),
    "begin: tell the sentinel, find the function": ("begin", "-submit"),
    "threads: execute and report": ("mainspring-threads",),
    "settle: conclude, count": ("_settle", "-store.settle", "-pack_outcome", "-end"),
    "settle: encode": ("pack_outcome",),
    "settle: store": ("store.settle",),
    "settle: tell the sentinel": ("end",),
    "loops: the rest": (*LOOPS, "-store.claim", "-begin", "-_settle"),
    "care: beats, leases": ("heartbeat",),
    "care: janitor, pruning": ("janitor",),
    "other threads": ("MainThread", "other", "mainspring-care", "-heartbeat", "-janitor"),
}
"""How a layer is made up of what was watched: the sum of these, less those with a minus."""


class Broken(Exception):
    """A contender did not do what it should; the text says what, with its last words."""


class Put(NamedTuple):
    """Enqueued per second and CPU us each, singly and in bulk (0 if it cannot)."""

    single: float
    single_cpu: float
    bulk: float
    bulk_cpu: float

    def best(self, other: Put) -> Put:
        """Return the better of both, singly and in bulk."""
        return Put(*max(self[:2], other[:2]), *max(self[2:], other[2:]))


class Executed(NamedTuple):
    """Runs executed and acknowledged per second, CPU us per run, and the bytes resident at the end."""

    runs: int
    seconds: float
    rate: float
    acknowledged: float
    cpu: float
    server: float
    rss: int

    def best(self, other: Executed) -> Executed:
        """Return the quicker one."""
        return max(self, other, key=attrgetter("acknowledged"))


class Idled(NamedTuple):
    """Seconds from enqueue to start, and the share of a core that an idle worker and its server take."""

    latencies: list[float]
    cpu: float
    server: float
    rss: int


class Place:
    """An empty database and a folder for notes, with processes that use them."""

    def __init__(self, contender: Contender, url: str, folder: Path) -> None:
        self.contender, self.url, self.folder = contender, url, folder
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT), "BENCH_URL": url, "BENCH_FOLDER": str(folder)}
        self._log = folder / "log"

    def start(self, words: list[str], *, talks: bool = False) -> subprocess.Popen[str]:
        """Start a process in a session of its own; what it says goes into the log, unless it `talks` to us."""
        with self._log.open("a") as log:
            return subprocess.Popen(
                words,
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def broken(self, what: str) -> Broken:
        """Make the error that says what went wrong, with the end of the log."""
        said = "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_WORDS:])
        return Broken(f"{self.contender.name} on {self.contender.store} {what}:\n{said}")


class Client:
    """The enqueuing process."""

    def __init__(self, place: Place) -> None:
        self._place = place
        words = [place.contender.python, "-m", "bench.queueing.client", place.contender.module]
        self._process = place.start(words, talks=True)

    def ask(self, verb: str, **options: Any) -> Any:
        """Have it do something, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([verb, options]) + "\n")
            self._process.stdin.flush()
            said = self._process.stdout.readline()
        except OSError:
            said = ""
        if not said:
            raise self._place.broken(f"has no answer to {verb}")
        return json.loads(said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _end(self._process)


class Workers:
    """The worker processes, with all their children."""

    def __init__(self, place: Place, count: int) -> None:
        self._place = place
        self._processes = [place.start(words) for words in place.contender.commands(count, place.url)]

    def check(self) -> None:
        """Raise if one has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise self._place.broken(f"has a worker that ended with {process.returncode}")

    def cpu(self) -> float:
        """Return the CPU seconds of all, those of children that have ended too."""
        return sum(process_cpu(pid, reaped=True) for pid in self._tree())

    def rss(self) -> int:
        """Return the bytes resident in all."""
        return sum(_resident(pid) for pid in self._tree())

    def _tree(self) -> list[int]:
        found, new = [], [process.pid for process in self._processes]
        while new:
            found += new
            new = [child for pid in new for child in _children(pid)]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            _end(process)


@contextlib.contextmanager
def placed(contender: Contender, bed: Bed) -> Iterator[tuple[Place, Client]]:
    """Give an empty database, prepared by the client."""
    with bed.empty() as url, tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
        place = Place(contender, url, Path(folder))
        with Client(place) as client:
            client.ask("prepare")
            yield place, client


def measure_enqueue(contender: Contender, bed: Bed, seconds: float, bulk: int) -> Put:
    """Enqueue with no worker there."""
    with placed(contender, bed) as (_, client):
        found = client.ask("single", seconds=seconds)
        single = (found["count"] / found["wall"], found["cpu"] / found["count"] * 1e6)
    with placed(contender, bed) as (_, client):
        if not client.ask("can_bulk"):
            return Put(*single, 0.0, 0.0)
        found = client.ask("bulk", count=bulk)
        return Put(*single, found["count"] / found["wall"], found["cpu"] / found["count"] * 1e6)


class Sample(NamedTuple):
    """What was spent when so much was done."""

    counted: Counted
    cpu: float
    server: float


def measure_execute(contender: Contender, bed: Bed, workers: int, count: int, longest: float) -> Executed:
    """Execute what was enqueued before; stop after `longest` seconds if it is not over."""
    with placed(contender, bed) as (place, client):
        client.ask("fill", count=count)
        with Workers(place, workers) as working:

            def sample() -> Sample:
                return Sample(read_counted(place.folder), working.cpu(), bed.server_cpu())

            def wait(least: int, until: float) -> None:
                while read_counted(place.folder).calls < least and time.monotonic() < until:
                    working.check()
                    time.sleep(0.02)

            wait(1, time.monotonic() + PATIENCE)
            begin = sample()
            if not begin.counted.calls:
                raise place.broken(f"has executed nothing in {PATIENCE:g} s")
            first = begin.counted.first
            wait(count, first + longest)
            end = sample()
            done = client.ask("done", count=count)
            while end.counted.calls >= count and done < count and time.monotonic() < first + longest + PATIENCE:
                time.sleep(0.02)
                done = client.ask("done", count=count)
            acknowledged = done / (time.monotonic() - first)
            runs, spent = end.counted.calls, max(end.counted.calls - begin.counted.calls, 1)
            seconds = max(end.counted.last - first, 1e-9)
            costs = ((end.cpu - begin.cpu) / spent * 1e6, (end.server - begin.server) / spent * 1e6)
            return Executed(runs, seconds, runs / seconds, acknowledged, *costs, working.rss())


def read_layers(folder: Path) -> dict[str, Any]:
    """Return what the worker process has noted last; nothing if it has executed nothing."""
    for path in folder.glob("layers-*[0-9]"):
        found: dict[str, Any] = json.loads(path.read_text())
        if found["runs"]:
            return found
    return {}


def measure_layers(contender: Contender, bed: Bed, count: int, longest: float) -> dict[str, tuple[float, float]]:
    """Return the CPU us and wall us per run of what `layers` watches."""
    with placed(contender, bed) as (place, client):
        client.ask("fill", count=count)
        place.environ["BENCH_LAYERS"] = "1"
        with Workers(place, 1) as working:
            begin: dict[str, Any] = {}
            end: dict[str, Any] = {}
            until = time.monotonic() + PATIENCE
            while end.get("runs", 0) < count and time.monotonic() < until:
                working.check()
                time.sleep(0.05)
                end = read_layers(place.folder)
                if end and not begin:
                    begin, until = end, time.monotonic() + longest
            if end.get("runs", 0) == begin.get("runs", 0):
                raise place.broken("has noted nothing of its layers")
            runs = end["runs"] - begin["runs"]
            before = begin["spent"]
            spent = {
                name: [now - was for now, was in zip(found, before.get(name, (0.0, 0.0)), strict=True)]
                for name, found in end["spent"].items()
            }
            return {name: (cpu / runs * 1e6, wall / runs * 1e6) for name, (cpu, wall) in spent.items()}


def measure_idle(contender: Contender, bed: Bed, count: int, gap: float, idle: float) -> Idled:
    """Enqueue single calls for an idle worker, then leave it alone."""
    with placed(contender, bed) as (place, client), Workers(place, 1) as working:
        latencies = client.ask("latency", warm=10, count=count, gap=gap)
        time.sleep(2.0)
        working.check()
        begun, cpu, server = time.monotonic(), working.cpu(), bed.server_cpu()
        time.sleep(idle)
        took = time.monotonic() - begun
        return Idled(latencies, (working.cpu() - cpu) / took, (bed.server_cpu() - server) / took, working.rss())


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def _end(process: subprocess.Popen[str]) -> None:
    """See that a process ends, and all that it has started."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
