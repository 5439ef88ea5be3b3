"""Real clusters in folders of their own, and proof that none of their processes stays."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import redis
from sqlalchemy import create_engine, inspect, text

from mainspring import Mainspring
from mainspring.core.showing.run_view import RunView

HERE = Path(__file__).parent
MARK = "MAINSPRING_TEST_MARK"
PATIENCE = 90.0
T = TypeVar("T")


def wait_until(look: Callable[[], T], what: Callable[[], str] = str, patience: float = PATIENCE) -> T:
    """Look until there is something to see."""
    deadline = time.monotonic() + patience
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"in {patience:g} s there was no {what()}")
        time.sleep(0.02)
    return found


class Line(NamedTuple):
    """A line of the ledger: what a task did, outside the store."""

    word: str
    run_id: str
    attempt: int
    pid: int


class Yard:
    """A folder with an app in it, and the clusters that execute its runs."""

    def __init__(self, folder: Path, url: str | None = None, lease: float = 15.0, file: str = "jobs.py") -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.url = url or f"sqlite:///{folder / 'jobs.db'}"
        self.env = {
            **os.environ,
            "MAINSPRING_URL": self.url,
            "MAINSPRING_SECRET_KEY": "a key for the tests of clusters long enough to sign",
            "JOBS_FOLDER": str(folder),
            "JOBS_NAME": f"y{self.mark[:12]}",
            "JOBS_LEASE": str(lease),
            "PYTHONDONTWRITEBYTECODE": "1",
            MARK: self.mark,
        }
        self.clusters: list[subprocess.Popen[bytes]] = []
        shutil.copy(HERE / "jobs.py", folder / file)
        self.jobs = self.load(file)
        self.app: Mainspring = self.jobs.app

    def load(self, file: str) -> Any:
        """Import the app here as its workers do, so that its tasks have the same names."""
        before = dict(os.environ)
        os.environ.update(
            {name: self.env[name] for name in self.env if name not in before or before[name] != self.env[name]}
        )
        try:
            spec = spec_from_file_location(Path(file).stem, self.folder / file)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            _ = module.app.codec  # reads the key
        finally:
            os.environ.clear()
            os.environ.update(before)
        return module

    # -- clusters ----------------------------------------------------------------------------------------------

    def start(
        self, *options: str, app: str = "jobs:app", env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `mainspring worker`, without waiting for it."""
        with (self.folder / "log").open("ab") as file:
            cluster = subprocess.Popen(
                [sys.executable, "-m", "mainspring", "worker", app, *options],
                cwd=self.folder,
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.clusters.append(cluster)
        return cluster

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program of Python's here to its end."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            **options,
        )

    def status(self) -> dict[str, Any]:
        """Ask `mainspring status`."""
        done = self.run("-m", "mainspring", "status", "jobs:app", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def log(self) -> str:
        """Return what the clusters have logged."""
        return (self.folder / "log").read_text()

    def await_log(self, text: str) -> None:
        """Wait until a cluster has logged something."""
        wait_until(lambda: text in self.log(), lambda: f"{text!r} in the log\n{self.log()}")

    # -- what has happened -------------------------------------------------------------------------------------

    def ledger(self, word: str | None = None, run: Any = None) -> list[Line]:
        """Return what tasks have noted, of one kind or of one run."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for text in (self.folder / "ledger").read_text().splitlines():
                kind, run_id, attempt, pid = text.split()
                found.append(Line(kind, run_id, int(attempt), int(pid)))
        return [line for line in found if word in (None, line.word) and (run is None or line.run_id == run.id)]

    def await_line(self, word: str, run: Any = None, count: int = 1) -> list[Line]:
        """Wait for lines of the ledger."""

        def look() -> list[Line]:
            lines = self.ledger(word, run)
            return lines if len(lines) >= count else []

        return wait_until(look, lambda: f"{count} lines {word!r}\n{self.log()[-6000:]}")

    def spawned(self, count: int = 1) -> list[int]:
        """Wait for so many workers to start; return their pids."""
        return [line.pid for line in self.await_line("spawned", count=count)]

    @contextlib.contextmanager
    def store_locked(self) -> Iterator[None]:
        """Keep everybody from writing to the SQLite store."""
        with contextlib.closing(sqlite3.connect(self.folder / "jobs.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout = 5000")
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    def open(self, gate: str) -> None:
        """Let the tasks at a gate through."""
        (self.folder / gate).touch()

    def end(self, handles: Sequence[Any], patience: float = PATIENCE) -> list[RunView]:
        """Wait until runs have ended."""
        try:
            return self.app.wait(handles, timeout=patience)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.log()[-6000:]}") from error

    def await_status(self, handle: Any, *statuses: str) -> RunView:
        """Wait until a run is in one of the statuses."""

        def look() -> RunView | None:
            found: RunView = handle.fetch()
            return found if found.status in statuses else None

        found = wait_until(look, lambda: f"run that is {statuses}\n{self.log()[-6000:]}")
        assert found is not None
        return found

    # -- processes ---------------------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """Return the living processes that were started from here, each with its command."""
        found = {}
        mark = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError, IndexError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state not in "ZX":
                        found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")[-200:]
        return found

    def close(self) -> None:
        """Stop the clusters; assert that they end, and that nothing of them stays."""
        for cluster in self.clusters:
            if cluster.poll() is None:
                cluster.send_signal(signal.SIGTERM)
                cluster.send_signal(signal.SIGTERM)
        try:
            for cluster in self.clusters:
                cluster.wait(PATIENCE)
            self.assert_nothing_stays()
        finally:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.app.close()
            self._clean_up()

    def _clean_up(self) -> None:
        """Take what is ours out of a server that others use, too."""
        name = self.env["JOBS_NAME"]
        if self.url.startswith("redis"):
            with redis.Redis.from_url(self.url) as client:
                client.delete(*client.scan_iter(f"*{name}*", 1000), "")
        elif self.url.startswith("postgresql"):
            engine = create_engine(self.url)
            with engine.begin() as connection:
                for table in inspect(connection).get_table_names():
                    if table.startswith(name):
                        connection.execute(text(f'DROP TABLE "{table}" CASCADE'))
            engine.dispose()

    def assert_nothing_stays(self) -> None:
        """Wait until all processes are gone."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.processes(), patience=15)
        assert self.processes() == {}


@contextlib.contextmanager
def yard_in(folder: Path, **options: Any) -> Iterator[Yard]:
    """Have a yard for a while."""
    yard = Yard(folder, **options)
    try:
        yield yard
    finally:
        yard.close()


def stop(cluster: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
    """Send a signal and wait for the end; return the exit code."""
    cluster.send_signal(number)
    return cluster.wait(PATIENCE)
