"""The torment: real processes are killed, frozen and cut off from their store, by a seed and by how far the work is."""

from __future__ import annotations

import bisect
import contextlib
import heapq
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from mainspring.codec import Codec, Keyring
from mainspring.core.run import UNFINISHED, Run
from mainspring.jobstores.base import RunQuery
from tests.chaos.actor import ROOT, Actor
from tests.chaos.backs import Back
from tests.chaos.ledger import EFFECT, FAULT, Ledger, Reader
from tests.chaos.proxy import CUTS, Proxy

KEY: Final = "the key of the chaos run and long enough"
TICK: Final = 0.05
LATER: Final = 20
"""Runs after which a fault that hit nobody is tried again."""
JOBS: Final = ((1.0, False), (0.7, True), (3.0, False))
"""The jobs that fire meanwhile: seconds between two fires, whether overdue ones are coalesced."""
KINDS: Final = ("kill", "freeze", "restart", "tamper", "cut")

log = logging.getLogger("mainspring.chaos")


class Plan(NamedTuple):
    """What is to happen."""

    store: str
    runs: int
    kills: int
    freezes: int
    restarts: int
    tampers: int
    seed: int
    lease: float
    clusters: tuple[int, ...] = (2, 1)
    """The worker processes of each cluster."""
    cuts: int = 0
    """Of the network between one program and the server."""
    clocks: bool = False
    """Whether the programs' clocks are wrong."""


class Fault(NamedTuple):
    """One harm, when so many runs are done."""

    at: int
    kind: str
    chance: random.Random


def schedule(plan: Plan) -> list[Fault]:
    """Spread the faults over the runs: the same for the same seed."""
    chance = random.Random(plan.seed)
    kinds = {name: getattr(plan, f"{name}s") for name in KINDS}
    faults = [
        Fault(chance.randrange(plan.runs // 50, max(plan.runs * 49 // 50, 2)), kind, random.Random(chance.random()))
        for kind, number in kinds.items()
        for _ in range(number)
    ]
    return sorted(faults, key=lambda fault: fault.at)


class Cut(NamedTuple):
    """A program that is cut off from the server."""

    begin: float
    end: float
    pids: list[int]


class Torment:
    """One chaos run, from the first process to the store at rest."""

    def __init__(self, plan: Plan, folder: Path, back: Back, tell: Callable[[str], None] = lambda text: None) -> None:
        self.plan, self.folder, self.back, self._tell = plan, folder, back, tell
        self.ledger, self._reader = Ledger(folder), Reader(folder)
        self.spoiled: dict[str, bytes] = {}
        self.whole: list[str] = []
        """Neighbours of the spoiled, to be executed."""
        self.counts = dict.fromkeys(KINDS, 0)
        self.done: set[str] = set()
        self._frozen: list[tuple[float, int]] = []
        self._cut: dict[Actor, Cut] = {}
        self._looked_at = self._moved_at = time.monotonic()
        self.mark = f"CHAOS_MARK={os.getpid()}-{time.monotonic_ns()}"
        env = {
            **os.environ,
            "MAINSPRING_URL": back.url,
            "MAINSPRING_SECRET_KEY": KEY,
            "CHAOS_FOLDER": str(folder),
            "CHAOS_LEASE": str(plan.lease),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CHAOS_MARK": self.mark.partition("=")[2],
        }
        worker = ["-m", "mainspring", "worker", "tests.chaos.jobs:app", "-t", "4", "--log-level", "warning", "-p"]
        self.clusters = [
            Actor(f"cluster{number}", [*worker, str(size)], env, folder) for number, size in enumerate(plan.clusters)
        ]
        self.node = Actor("node", ["-m", "tests.chaos.jobs"], env, folder)
        self.producer = Actor("producer", ["-m", "tests.chaos.producer", str(plan.runs), str(plan.seed)], env, folder)
        self.actors = (*self.clusters, self.node, self.producer)
        self._harm = {
            "kill": self._kill, "freeze": self._freeze, "restart": self._restart, "tamper": self._tamper,
            "cut": self._sever,
        }  # fmt: skip
        self.jobs = _load(env)
        self.app = self.jobs.app

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do it all; afterwards `runs` holds what is in the store."""
        try:
            self.app.store.start(None, "default")
            self._add_jobs()
            self._mislead()
            faults = schedule(self.plan)
            while faults or not self.producer.done:
                self._look()
                while faults and (faults[0].at <= len(self.done) or self._stuck()):
                    fault = faults.pop(0)
                    if self._harm[fault.kind](fault.chance):
                        self.counts[fault.kind] += 1
                    else:  # nobody is there whom it could hit: a little later
                        bisect.insort(faults, fault._replace(at=len(self.done) + LATER), key=lambda fault: fault.at)
                        break
            self.left = self._come_to_rest()
            self._stop()
            self.runs = self._dump()
            self.counters = self.app.counters()
            self.queues = self.app.queues()
        finally:
            self.app.close()
            self._end_all()
            for actor in self.actors:
                if actor.proxy is not None:
                    actor.proxy.close()

    def _look(self) -> None:
        """Let a moment pass: thaw, start again, count what is done."""
        time.sleep(TICK)
        now = time.monotonic()
        if now - self._looked_at > self.plan.lease / 6:
            # This machine had no time for us, so perhaps none for a heartbeat.
            self.ledger.note(FAULT, "stall", round(now - self._looked_at, 3))
        self._looked_at = now
        while self._frozen and self._frozen[0][0] <= now:
            _send(heapq.heappop(self._frozen)[1], signal.SIGCONT)
        self._mend(now)
        for actor in self.actors:
            actor.look()
        before = len(self.done)
        self.done.update(
            record.id for record in self._reader.fresh() if record.kind == EFFECT and record.id.startswith("run")
        )
        if len(self.done) > before:
            self._moved_at = now
        self._tell(
            f"{len(self.done):,}/{self.plan.runs:,} runs, "
            + ", ".join(f"{number} {kind}s" for kind, number in self.counts.items())
        )

    def _stuck(self) -> bool:
        """Tell whether all is done that will be, so that no later point is reached."""
        return self.producer.done and time.monotonic() - self._moved_at > 2 * self.plan.lease

    def _mislead(self) -> None:
        """Give the programs wrong clocks and, to a server, a way that can be cut."""
        for number, actor in enumerate(self.actors):
            if self.plan.clocks:
                actor.env["CHAOS_CLOCK"] = f"{self.plan.seed}-{number}"
            if self.plan.cuts and self.back.port is not None:
                actor.proxy = Proxy(self.back.port)
                actor.env["MAINSPRING_URL"] = self.back.url.replace(f":{self.back.port}", f":{actor.proxy.port}")

    def _add_jobs(self) -> None:
        begin = datetime.now(UTC) + timedelta(seconds=2)
        for number, (seconds, coalesce) in enumerate(JOBS):
            self.app.add_job(
                self.jobs.tick, "interval", id=f"job{number}", seconds=seconds, start_date=begin, coalesce=coalesce,
                max_instances=1000, queue="default",
            )  # fmt: skip

    # -- harm --------------------------------------------------------------------------------------------------

    def _victim(self, chance: random.Random, kinds: str) -> tuple[Actor, int] | None:
        """Choose whom to harm: a worker, a sentinel, a plain node, the producer; one that is there and not frozen."""
        frozen = {pid for _, pid in self._frozen}
        for kind in chance.choices(kinds, k=20):
            actor = {"n": self.node, "p": self.producer}.get(kind) or chance.choice(self.clusters)
            if actor.process is None or actor.process.poll() is not None or actor.process.pid in frozen:
                continue
            children = actor.children()
            if frozen.isdisjoint(children) and (kind != "w" or children):
                return actor, chance.choice(children) if kind == "w" else actor.process.pid
        return None

    def _kill(self, chance: random.Random) -> bool:
        found = self._victim(chance, "wwwwsnnp")
        if found is None:
            return False
        actor, pid = found
        self.ledger.write(FAULT, [("kill", 0, None, 0)], pid)
        is_head = actor.process is not None and pid == actor.process.pid
        for child in actor.children() if is_head else ():
            self.ledger.write(FAULT, [("kill", 0, None, 0)], child)  # they die with their sentinel
        _send(pid, signal.SIGKILL)
        if is_head:
            actor.start_at = time.monotonic() + chance.uniform(0, 1)
        return True

    def _freeze(self, chance: random.Random) -> bool:
        found = self._victim(chance, "wwsnn")
        if found is None:
            return False
        seconds = chance.uniform(0.5, 4) * self.plan.lease
        actor, pid = found
        is_sentinel = actor in self.clusters and actor.process is not None and pid == actor.process.pid
        for each in (pid, *(actor.children() if is_sentinel else ())):  # it renews the leases of its workers
            self.ledger.write(FAULT, [("freeze", 0, None, round(seconds, 3))], each)
        _send(pid, signal.SIGSTOP)
        _await_stop(pid)
        if self.back.locked_by(pid):
            self.counts["lock"] = self.counts.get("lock", 0) + 1
            self.ledger.write(FAULT, [("lock", 0, None, round(seconds, 3))], pid)
        heapq.heappush(self._frozen, (time.monotonic() + seconds, pid))
        return True

    def _restart(self, chance: random.Random) -> bool:
        began = time.monotonic()
        self.back.go_away(chance.uniform(0, 1) * min(2.0, self.plan.lease))
        self._looked_at = time.monotonic()
        self.ledger.note(FAULT, "restart", round(self._looked_at - began, 3))
        return True

    def _sever(self, chance: random.Random) -> bool:
        """Cut a program off from the server, or only from its replies; the others go on."""
        whole = [each for each in self.actors if each.proxy and each.process and each not in self._cut]
        if not whole:
            return False
        actor, now = chance.choice(whole), time.monotonic()
        assert actor.proxy is not None
        actor.proxy.cut(chance.choice(CUTS))
        self._cut[actor] = Cut(now, now + chance.uniform(0.1, 1.5) * self.plan.lease, actor.pids())
        return True

    def _mend(self, now: float) -> None:
        for actor, cut in list(self._cut.items()):
            if cut.end <= now:
                assert actor.proxy is not None
                actor.proxy.mend()
                del self._cut[actor]
                for pid in {*cut.pids, *actor.pids()}:
                    self.ledger.note(FAULT, "cut", round(time.monotonic() - cut.begin, 3), pid)

    def _tamper(self, chance: random.Random) -> bool:
        """Alter a run that waits; another beside it is left alone."""
        name = f"bad{self.counts['tamper']:05d}"
        calls = [self.jobs.forbidden.options(id=name, delay=1.5).call(0)]
        calls.append(self.jobs.ok.options(id=f"{name}.neighbour", delay=1.5).call(0))
        try:
            self.app.enqueue_many(calls)
            frame, other = self.back.frame(name), self.back.frame(f"{name}.neighbour")
            assert frame is not None
            assert other is not None
            spoiled = damage(frame, other, chance)
            self.back.spoil(name, spoiled)
            run = self.app.store.get_runs([name])[0]
        except Exception as error:  # the store may be down, and then nothing is known about this one
            log.warning("tampering with %s failed: %s", name, error)
            return False
        self.whole.append(f"{name}.neighbour")
        if run is None or run.attempt == 0:  # else somebody was quicker than we
            self.spoiled[name] = spoiled
        return True

    # -- the end -----------------------------------------------------------------------------------------------

    def _come_to_rest(self) -> list[str]:
        """Wait until nothing is left to do; return what is left all the same."""
        for number in range(len(JOBS)):
            self._insist(partial(self.app.remove_job, f"job{number}"))
        deadline = time.monotonic() + 60 + 12 * self.plan.lease
        while time.monotonic() < deadline:
            self._look()
            if (
                not self._frozen
                and not self._cut
                and not self._insist(lambda: self.app.count(status=[str(s) for s in UNFINISHED]))
            ):
                return []
        return [run.id for run in self.app.find(status=[str(s) for s in UNFINISHED])]

    def _unfinished(self) -> int:
        return self.app.count(status=[str(status) for status in UNFINISHED])  # type: ignore[no-any-return]

    def _insist(self, verb: Callable[[], Any]) -> Any:
        """Do something to the store, which may just have been taken away."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return verb()
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _stop(self) -> None:
        """Stop the nodes in good order."""
        actors = [actor for actor in (*self.clusters, self.node) if actor.process is not None]
        for actor in actors:
            assert actor.process is not None
            _send(actor.process.pid, signal.SIGTERM)
        for actor in actors:
            assert actor.process is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                actor.process.wait(40)

    def _dump(self) -> dict[str, Run]:
        found: dict[str, Run] = {}
        page: list[Run] = []
        while page := self.app.store.find_runs(RunQuery(), after=page[-1] if page else None, limit=1000):
            found.update((run.id, run) for run in page)
        return found

    def _end_all(self) -> None:
        """End every process that was started here, whatever state it is in."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                        _send(int(entry.name), signal.SIGKILL)
        for actor in self.actors:
            if actor.process is not None:
                actor.process.wait(10)


def damage(frame: bytes, other: bytes, chance: random.Random) -> bytes:
    """Spoil a frame in one of many ways."""
    spot = chance.randrange(len(frame))
    foreign = Codec(Keyring(["somebody else's key, as long"])).dumps({"f": "os:abort", "a": [], "k": {}, "n": "x"}, "")
    ways = [
        frame[:spot] + bytes([frame[spot] ^ (1 << chance.randrange(8))]) + frame[spot + 1 :],
        frame[:spot],
        other,  # validly signed, for its neighbour
        foreign,
        frame + chance.randbytes(1 + spot),
        chance.randbytes(len(frame)),
        b"\0" * (1 << 20),
        b"",
    ]
    return chance.choice(ways)


def _load(env: dict[str, str]) -> Any:
    """Import the app as its workers do; a second run in this process imports it anew."""
    before = dict(os.environ)
    os.environ.update(env)
    try:
        sys.modules.pop("tests.chaos.jobs", None)
        jobs = import_module("tests.chaos.jobs")
        _ = jobs.app.codec  # reads the key
    finally:
        os.environ.clear()
        os.environ.update(before)
    return jobs


def _await_stop(pid: int) -> None:
    """Wait until a process that was told to stop has stopped, or is gone."""
    with contextlib.suppress(OSError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TtZX":
            time.sleep(0.001)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
