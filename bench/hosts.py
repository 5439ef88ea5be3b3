"""How many runs per second do workers on several hosts execute, and what is the bottleneck?

`python3 run.py bench hosts [--hosts 2 4 8] [--stores redis postgresql] [--runs N]`. Each host is a network namespace
with an address of its own on a private bridge, and one worker process; the server is outside, at the bridge's address.
Nothing leaves the bridge. Everything that is made is removed at the end, also after Ctrl-C. Needs Linux and root.
`--realtime` lets everything else on the machine wait while it measures, a few seconds each time.

Hosts share the cores of this machine, so the rate does not grow beyond them. The CPU time of each process says what a
host of its own would add: a run costs the workers so much, and the server so much.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from mainspring import Mainspring
from tests.servers import PostgreSQL, Redis, Server

NETWORK = "10.213.87"
"""A private network that only exists between the namespaces."""
BRIDGE_ADDRESS = f"{NETWORK}.1"
STOP_SECONDS = 20.0
BUSY = 0.9
"""Share of a core, or of all cores, from which on it is the bottleneck."""
MODULE = """\
from mainspring import Mainspring

app = Mainspring({url!r}, name="hosts", secret_key="k" * 32, store_options={{"keep_runs": 100_000_000}})


@app.task
def nothing() -> None: ...
"""


class BridgeRedis(Redis):
    """A Redis server that is reached over the bridge."""

    def _command(self) -> list[str | Path]:
        return [*super()._command(), "--bind", "127.0.0.1", BRIDGE_ADDRESS, "--protected-mode", "no"]


class BridgePostgreSQL(PostgreSQL):
    """A PostgreSQL server that is reached over the bridge."""

    def _command(self) -> list[str | Path]:
        rules = self.directory / "data" / "pg_hba.conf"
        allowed = f"host all all {NETWORK}.0/24 trust\n"
        if allowed not in rules.read_text():
            rules.write_text(rules.read_text() + allowed)
        return [*super()._command(), "-c", f"listen_addresses=127.0.0.1,{BRIDGE_ADDRESS}"]


SERVERS: dict[str, type[Server]] = {"redis": BridgeRedis, "postgresql": BridgePostgreSQL}


# -- hosts ---------------------------------------------------------------------------------------------------------


def ip(*words: str) -> None:
    """Call the program `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Network namespaces on a private bridge."""

    prefix: ClassVar[str] = f"ms{os.getpid()}"

    def __init__(self, number: int) -> None:
        self.names = [f"{self.prefix}-{each}" for each in range(number)]
        self._bridge = f"{self.prefix}b"

    def __enter__(self) -> Hosts:
        try:
            ip("link", "add", self._bridge, "type", "bridge")
            ip("address", "add", f"{BRIDGE_ADDRESS}/24", "dev", self._bridge)
            ip("link", "set", self._bridge, "up")
            for number, name in enumerate(self.names):
                outer, inner = f"{self.prefix}o{number}", f"{self.prefix}i{number}"
                ip("netns", "add", name)
                ip("link", "add", outer, "type", "veth", "peer", "name", inner)
                ip("link", "set", inner, "netns", name)
                ip("link", "set", outer, "master", self._bridge, "up")
                ip("-n", name, "address", "add", f"{NETWORK}.{number + 2}/24", "dev", inner)
                ip("-n", name, "link", "set", inner, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for name in self.names:  # the pairs of interfaces go with them
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)
        with suppress(subprocess.CalledProcessError):
            ip("link", "delete", self._bridge)


@contextmanager
def workers(hosts: Hosts, folder: Path) -> Iterator[list[int]]:
    """Run a worker on each host; give their process ids."""
    command = [sys.executable, "-m", "mainspring", "worker", "bench_hosts_app:app", "--processes", "1"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for host in hosts.names:
            words, quiet = ["ip", "netns", "exec", host, *command], subprocess.DEVNULL
            started.append(subprocess.Popen(words, cwd=folder, stdout=quiet, stderr=quiet))
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for process in started:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# -- measuring -----------------------------------------------------------------------------------------------------


def threads(pid: int) -> Iterator[Path]:
    """Yield the threads of a process and of all processes below it, by their place in /proc."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        yield thread
        for child in (thread / "children").read_text().split():
            yield from threads(int(child))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of all processes below it."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads(pid)) / 1e9


def put_first(pids: Iterable[int]) -> None:
    """Let processes run before all others of the machine."""
    for pid in pids:
        for thread in threads(pid):
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def machine_seconds() -> tuple[float, float]:
    """Return the seconds that all cores of this machine have worked, and have had in all."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK"), sum(fields) / os.sysconf("SC_CLK_TCK")


def measure(app: Mainspring, server: Server, hosts: Hosts, folder: Path, runs: int, realtime: bool) -> str:
    """Let workers execute calls that do nothing; return a line of the table."""
    app.pause_queue("default")
    task = app.as_task("bench_hosts_app:nothing")
    app.enqueue_many(task.call() for _ in range(runs))
    with workers(hosts, folder) as pids:
        while len(app.nodes()) < len(pids):
            time.sleep(0.1)
        everybody = [server.pid, *pids]
        if realtime:
            put_first(everybody)
        spent = list(map(cpu_seconds, everybody))
        machine, began = machine_seconds(), time.monotonic()
        app.resume_queue("default")
        while app.counters()["succeeded"] < runs:
            time.sleep(0.05)
        took = time.monotonic() - began
        now = list(map(cpu_seconds, everybody))
        busy, had = (after - before for after, before in zip(machine_seconds(), machine, strict=True))
    spent = [after - before for after, before in zip(now, spent, strict=True)]
    serving, working = spent[0], sum(spent[1:])
    cores = os.cpu_count() or 1
    if serving >= BUSY * took and server.name == "Redis":
        bottleneck = "the server's one core"
    elif busy >= BUSY * had:
        ours = (serving + working) / took
        bottleneck = f"the {cores} cores of this machine, {ours:.1f} of them at work for this"
    else:
        bottleneck = "waiting: the network and the disk"
    each = [f"{serving / runs * 1e6:.0f}", f"{working / runs * 1e6:.0f}"]
    shares = ", ".join(f"{share / took:.0%}" for share in spent[1:])
    cells = [server.name, str(len(pids)), f"{runs / took:,.0f}", *each, f"{serving / took:.0%}", shares, bottleneck]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="run.py bench hosts", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--stores", nargs="+", choices=tuple(SERVERS), default=list(SERVERS))
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("--realtime", action="store_true", help="before everything else on the machine")
    options = parser.parse_args()
    if os.geteuid() != 0 or sys.platform != "linux":
        print("bench hosts makes network namespaces: it needs Linux and root", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up then, too
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.runs:,} runs, CPU us per run\n")
    print("| store | hosts | runs/s | server's us | workers' us | server's core | each worker's core | bottleneck |")
    print("|---|--:|--:|--:|--:|--:|---|---|", flush=True)
    for name in options.stores:
        for number in options.hosts:
            with ExitStack() as stack:
                hosts = stack.enter_context(Hosts(number))
                server = stack.enter_context(SERVERS[name]())
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-bench-")))
                url = server.url.replace("127.0.0.1", BRIDGE_ADDRESS)
                module = folder / "bench_hosts_app.py"
                module.write_text(MODULE.format(url=url), encoding="utf-8")
                app = Mainspring(url, name="hosts", secret_key="k" * 32, store_options={"keep_runs": 100_000_000})
                stack.callback(app.close)
                app.task(name="bench_hosts_app:nothing")(nothing)
                print(measure(app, server, hosts, folder, options.runs, options.realtime), flush=True)
    return 0


def nothing() -> None:
    """Stand for the task of the workers' module."""


if __name__ == "__main__":
    sys.exit(main())
