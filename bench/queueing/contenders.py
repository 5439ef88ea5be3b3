"""Who is compared, by which commands and settings; and the environment in which the peers are installed."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from run import Environment, call, create, get_uv, once, version_of

ROOT = Path(__file__).resolve().parents[2]
OURS = "mainspring"
PINS = ROOT / "bench" / "peers.txt"
PEERS = ROOT / "build" / "bench-queue"


class Contender(NamedTuple):
    """A library on a store: how its worker is started, and about how many no-ops a second one process executes.

    `command` has `{n}` where the number of worker processes goes; without it, the command is run that many times.
    """

    library: str
    store: str
    command: str
    settings: str
    pace: int
    label: str = ""

    @property
    def name(self) -> str:
        """What it is called in the tables."""
        return self.label or self.library

    @property
    def is_ours(self) -> bool:
        """Whether it is mainspring."""
        return self.library == OURS

    @property
    def module(self) -> str:
        """Its tasks and its enqueuing side."""
        return f"bench.queueing.{self.library}"

    @property
    def python(self) -> str:
        """The interpreter that has it."""
        return sys.executable if self.is_ours else str(PEERS / "bin" / "python")

    def commands(self, processes: int, url: str) -> list[list[str]]:
        """Return the commands that make so many worker processes."""
        words = [word.format(n=processes, url=url) for word in self.command.split()]
        words = [self.python, "-m", *words] if self.is_ours else [str(PEERS / "bin" / words[0]), *words[1:]]
        return [words] * (1 if "{n}" in self.command else processes)


WORKER = "mainspring worker bench.queueing.mainspring:app --processes {n} --no-schedule --log-level warning"
HUEY = "huey_consumer bench.queueing.huey.huey -q"
PGQ = "pgq run bench.queueing.pgqueuer:worker --log-level WARNING"
SIGNED = "sentinel over processes of 8 threads, signed, leases and fencing, result kept"

CONTENDERS: Sequence[Contender] = (
    Contender("huey", "redis", HUEY, "1 thread, result kept", 3000),
    Contender(
        "dramatiq", "redis", "dramatiq bench.queueing.dramatiq -p {n}",
        "8 threads per process, results middleware", 2500,
    ),
    Contender(
        "taskiq", "redis", "taskiq worker bench.queueing.taskiq:broker -w {n} --log-level WARNING",
        "RedisStreamBroker, result backend, async function", 2000,
    ),
    Contender(
        "celery", "redis", "celery -A bench.queueing.celery worker -c {n} -l WARNING",
        "prefork, result backend", 800,
    ),
    Contender("rq", "redis", "rq worker -u {url} -q", "forks for each job, result kept", 60),
    Contender(
        "rq", "redis", "rq worker -u {url} -q -w rq.SimpleWorker",
        "executes in the worker, result kept", 400, "rq simple"
    ),
    Contender(OURS, "redis", WORKER, SIGNED, 15_000),
    Contender("huey", "sqlite", HUEY, "1 thread, WAL, fsync off, result kept", 2500),
    Contender(OURS, "sqlite", WORKER, SIGNED, 10_000),
    Contender("pgqueuer", "postgresql", PGQ, "asyncpg, batches of 10, async function, no results", 5000),
    Contender(
        "pgqueuer", "postgresql", f"{PGQ} --batch-size 100", "the same, batches of 100", 7000, "pgqueuer 100"
    ),
    Contender(
        "procrastinate", "postgresql", "procrastinate -a bench.queueing.procrastinate.app worker",
        "one at a time, async function, no results", 300,
    ),
    Contender(OURS, "postgresql", WORKER, SIGNED, 8000),
)  # fmt: skip


def set_up_peers() -> None:
    """Install the peers into their own environment, unless that was done for these pins and this Python."""
    environment = Environment(PEERS, sys.executable, platform.python_version())
    key = hashlib.sha256(PINS.read_bytes() + environment.version.encode()).hexdigest()
    once(
        environment.stamp("peers"),
        key,
        f"install the peers into {PEERS.relative_to(ROOT)}",
        lambda: _install(environment),
    )


def _install(environment: Environment) -> None:
    uv = get_uv()
    if version_of(environment.python) != environment.version:
        PEERS.parent.mkdir(exist_ok=True)
        create(environment, uv)
    if uv is not None:
        call(uv, "pip", "sync", PINS, "--python", environment.python)
    else:
        call(environment.python, "-m", "pip", "install", "-r", PINS)


def peer_versions(libraries: Sequence[str]) -> list[str]:
    """Return the pinned versions of some libraries."""
    pins = dict(line.split("==") for line in PINS.read_text().splitlines() if "==" in line)
    return [f"{name} {pins[name]}" for name in libraries]
