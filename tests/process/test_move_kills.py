"""`mainspring move` is killed at each of its writes while nodes work on both stores: nothing is lost, nothing doubled.

A kill before a write leaves the stores as a kill after the write before it does. So each number stands for both. For
some targets only every second write is tried; all of them with `MAINSPRING_MOVES=whole`.
As a script: the command, in a new process for each line that it reads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg  # noqa: F401 - before the fork, so that each process has it
import pytest

from mainspring import Mainspring, current_run
from mainspring.app.moving import mover as moving
from mainspring.app.moving.jobs import JobMover
from mainspring.cli import main
from mainspring.cli import move as _move  # noqa: F401 - the same
from mainspring.core.instants import SECOND
from mainspring.core.run import UNFINISHED
from mainspring.errors import StoreUnavailable
from mainspring.jobstores import etcd, redis, sqlalchemy  # noqa: F401 - the same
from mainspring.jobstores.base import RunQuery
from tests.servers import PostgreSQL, Redis, Server
from tests.waiting import until

KEY = "a key of the tests that is long enough"
LIMIT = 90.0
TICK = 0.2
WRITES = ("add_runs", "settle", "delete_runs", "add_job", "update_job", "remove_jobs", "set_gate")
_numbers = count(1)


def line(path: str, word: str) -> None:
    """Leave a line behind."""
    with open(path, "a") as file:
        file.write(f"{word}\n")


def tick(path: str) -> None:
    """Leave the time behind at which this fire was due."""
    line(path, f"at:{current_run().record.fire_time}")


# -- the process that is killed ------------------------------------------------------------------------------------


def stop_at(number: int, way: str) -> None:
    """Be killed before the write of this number, or stop there and say so; 0 is no write."""
    make, seen = moving.Mover.__init__, count(1)

    def watched(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(seen) == number:
                if way == "stop":
                    print("reached", os.getpid(), file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGSTOP if way == "stop" else signal.SIGKILL)
            return write(*args, **kwargs)

        return call

    def begin(self: moving.Mover, *stores: Any) -> None:
        for store in stores:
            for name in WRITES:
                setattr(store, name, watched(getattr(store, name)))
        make(self, *stores)

    moving.Mover.__init__ = begin  # type: ignore[method-assign, assignment]


def serve() -> None:
    """Move in a process of its own for each line read; say how it ended."""
    for words in sys.stdin:
        number, way, source, target, name = words.split()
        child = os.fork()
        if not child:
            stop_at(int(number), way)
            main(["move", "--from", source, "--to", target, "--name", name, "--yes"])
        print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr, flush=True)


class Command:
    """The command, in processes that can be killed."""

    def __init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, "MAINSPRING_SECRET_KEY": KEY},
        )
        self.said: list[str] = []

    def begin(self, number: int, way: str, source: Mainspring, target: Mainspring) -> None:
        """Move until the write of this number; 0: to the end."""
        assert self._process.stdin is not None
        self.said.clear()
        self._process.stdin.write(f"{number} {way} {source.url} {target.url} {source.name}\n")
        self._process.stdin.flush()

    def read(self, word: str) -> int:
        """Wait for this word; return the number after it."""
        assert self._process.stderr is not None
        for said in self._process.stderr:
            self.said.append(said)
            if said.startswith(f"{word} "):
                return int(said.split()[1])
            if said.startswith("ended "):
                break
        raise AssertionError("".join(self.said))

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=LIMIT)


# -- the tests -----------------------------------------------------------------------------------------------------


def app_at(url: str, name: str) -> Mainspring:
    app = Mainspring(url, name=name, secret_key=KEY, timezone="UTC")
    app.task(line)
    app.task(tick)
    return app


class Story:
    """Two apps whose nodes work, what they have to do, and what was done."""

    def __init__(self, command: Command, source: Mainspring, target: Mainspring, folder: Path) -> None:
        self.command, self.source, self.target = command, source, target
        self.path = str(folder / "lines")
        self.expected: set[str] = set()
        self.far: list[str] = []
        options: dict[str, Any] = {"misfire_grace_time": None, "coalesce": False, "max_instances": 10**6}
        source.add_job(tick, "interval", seconds=TICK, id="tick", args=[self.path], **options)

    def begin(self, number: int, way: str = "kill") -> None:
        """Begin to move."""
        self.command.begin(number, way, self.source, self.target)

    def read(self, word: str) -> int:
        """Wait for a word of the command."""
        return self.command.read(word)

    def add(self, number: int) -> None:
        """Leave a job with one fire, runs that wait for a moment and for long, and a chain at the source."""
        soon = timedelta(seconds=1)  # the command comes before, as a rule
        task, due = self.source.as_task(line).options(delay=soon), datetime.now(UTC) + soon
        words = {kind: f"{kind}{number}" for kind in ("date", "run", "far", "first", "second")}
        self.source.add_job(line, "date", run_date=due, id=words["date"], args=[self.path, words["date"]])
        task.enqueue(self.path, words["run"])
        self.far.append(task.options(delay=3600).enqueue(self.path, words["far"]).id)
        self.source.chain([task.call(self.path, words["first"]), task.call(self.path, words["second"])])
        self.expected |= set(words.values())

    def bring_back(self) -> None:
        """Bring the ticking job back to the source, for the next move."""
        job = self.target.store.lookup_job("tick")
        assert job is not None
        assert JobMover(self.target.store, self.source.store).move(job)

    def check(self) -> None:
        """Wait until all is done, and see that it was done once; of the ticking job, no fire is missing."""
        for app in (self.source, self.target):
            until(lambda app=app: app.store.remove_jobs(["tick"]) is not None, despite=StoreUnavailable)  # type: ignore[misc]
        for run_id in self.far:
            self.target.postpone(run_id, timedelta(0))
        until(lambda: self.expected <= set(self.lines()), despite=StoreUnavailable)
        until(lambda: not any(map(self.unfinished, (self.source, self.target))), despite=StoreUnavailable)
        done = Counter(self.lines())
        times = sorted(int(word.removeprefix("at:")) for word in done if word.startswith("at:"))
        assert set(done.values()) == {1}
        assert {word for word in done if not word.startswith("at:")} == self.expected
        assert times == list(range(times[0], times[-1] + 1, int(TICK * SECOND)))

    def lines(self) -> list[str]:
        """Return the lines that were left behind."""
        return Path(self.path).read_text().split() if Path(self.path).exists() else []

    def unfinished(self, app: Mainspring) -> int:
        """Return how many runs an app has that have not ended."""
        return app.store.stats(RunQuery(status=tuple(UNFINISHED))).matching


@pytest.fixture(scope="module")
def command() -> Iterator[Command]:
    command = Command()
    yield command
    command.close()


@pytest.fixture
def make_story(command: Command, tmp_path: Path) -> Iterator[Callable[[str], Story]]:
    made: list[Story] = []

    def make(url: str) -> Story:
        name = f"kills{os.getpid()}x{next(_numbers)}"
        apps = [app_at(f"sqlite:///{tmp_path}/source.db", name), app_at(url, name)]
        made.append(Story(command, apps[0], apps[1], tmp_path))
        for app in apps:
            app.start(work=True)
        until(made[-1].lines, "the job has not ticked")  # a move may hold it before its first fire
        return made[-1]

    yield make
    for story in made:
        for app in (story.source, story.target):
            app.stop()
            app.store.delete_runs([run.id for run in app.find(limit=1000)])
            app.close()


@pytest.mark.parametrize(("kind", "step"), [("redis", 1), ("postgresql", 2), ("etcd", 2)])
def test_a_kill_at_any_write_loses_and_doubles_nothing(
    make_story: Callable[[str], Story], request: pytest.FixtureRequest, tmp_path: Path, kind: str, step: int
) -> None:
    url = request.getfixturevalue(f"{kind}_server").url
    if kind == "etcd":  # it holds only jobs
        url += f"/moves/{tmp_path.name}?runs={quote(f'sqlite:///{tmp_path}/runs.db', safe='')}"
    story = make_story(url)
    for number in count(1, 1 if os.environ.get("MAINSPRING_MOVES") == "whole" else step):
        story.add(number)
        story.begin(number)
        killed = story.read("ended")
        assert killed in (0, -signal.SIGKILL), story.command.said
        story.source.move_to(story.target)
        if killed == 0:  # it has not so many writes
            break
        story.bring_back()
    assert number > 10  # each job and each page of runs takes four writes, a page of ended runs two
    story.check()


@pytest.mark.parametrize(("kind", "numbers"), [(Redis, (2, 8)), (PostgreSQL, (8,))], ids=["redis", "postgresql"])
def test_a_target_that_is_killed_half_way_loses_and_doubles_nothing(
    start_server: Callable[[type[Server]], Server],
    make_story: Callable[[str], Story],
    kind: type[Server],
    numbers: tuple[int, ...],
) -> None:
    server = start_server(kind)
    story = make_story(server.url)
    for number in numbers:  # before the copy of the first job, and before something is let go
        story.add(number)
        story.begin(number, "stop")
        process = story.read("reached")
        server.kill()
        while not _is_stopped(process):  # it stops right after it has said so
            time.sleep(0.001)
        os.kill(process, signal.SIGCONT)
        assert story.read("ended") == 3, story.command.said  # the store does not answer
        server.restart()
        story.source.move_to(story.target)
        story.bring_back()
    story.check()


def _is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


if __name__ == "__main__":
    serve()
