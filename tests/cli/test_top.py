"""`mainspring top` in a real terminal and without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.cli.top.snapshot import take
from tests.cli.jobs.test_jobs import add_jobs
from tests.cli.kit import LIMIT, Shop, resize
from tests.cli.test_terminal import environment
from tests.waiting import until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a terminal of Unix")


class Terminal:
    """A terminal in which `mainspring top` runs."""

    def __init__(self, shop: Shop, *words: str, columns: int, lines: int, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        named = ["--name", shop.name] if shop.name != "mainspring" else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mainspring", "top", "--interval", "0.2", *words, *named],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment(shop, **more),
        )  # fmt: skip
        os.close(theirs)
        self.said = ""

    def until(self, text: str, *, fresh: bool = False) -> None:
        """Read until a text is shown; `fresh`: from now on."""
        start, limit = len(self.said) if fresh else 0, time.monotonic() + LIMIT
        while text not in self.said[start:]:
            assert time.monotonic() < limit, f"{text!r} was not shown: {self.said[-3000:]!r}"
            self._read()

    def _read(self) -> None:
        try:
            self.said += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self._ours, 65_536).decode(errors="replace"))
        except OSError:  # how Linux says that nobody holds the other end
            raise AssertionError(f"it has ended: {self.said[-3000:]!r}") from None

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._ours, keys.encode())

    def close(self) -> int:
        """Quit, and return the exit code."""
        self.press("q")
        return self.ended()

    def ended(self) -> int:
        """Wait for its end, and return the exit code."""
        limit = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < limit:
            try:
                self.said += os.read(self._ours, 65_536).decode(errors="replace")
            except OSError:
                break
        return self.process.wait(LIMIT)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        os.close(self._ours)


@contextmanager
def running(shop: Shop, *words: str, columns: int = 120, lines: int = 40, **more: str) -> Iterator[Terminal]:
    terminal = Terminal(shop, *words, columns=columns, lines=lines, **more)
    try:
        yield terminal
    finally:
        terminal.kill()


def test_keys_act_on_what_is_chosen_in_every_store(any_shop: Shop) -> None:
    shop = add_jobs(any_shop)
    shop.app.remove_job("nightly")  # after two in the morning it would be the first
    with running(shop) as top:
        top.until(shop.ids["bob"])
        top.until("rare")
        top.until("tab section")
        top.press("\t")  # from the runs to the queues
        top.until("> queue")
        top.press("p")
        top.until("paused default")
        until(lambda: any(queue.paused for queue in shop.app.queues()))
        top.press("p")
        top.until("resumed default")
        until(lambda: not any(queue.paused for queue in shop.app.queues()))
        top.press("\t")
        top.until("> job")
        top.press("p")
        top.until("paused thumbs")
        until(lambda: shop.app.get_job("thumbs").next_run_time is None)
        assert top.close() == 0


def test_runs_are_sent_back_and_cancelled_by_keys(shop: Shop) -> None:
    with running(shop) as top:
        top.until(shop.ids["bob"])
        rows = [row.id for row in take(shop.app).rows["runs"]]
        top.press("j" * rows.index(shop.ids["bob"]))
        top.press("r")
        top.until(f"sent back {shop.ids['bob']}")
        assert shop.statuses()["bob"] == "pending"
        top.press("c")
        top.until(f"cancelled {shop.ids['bob']}")
        assert shop.statuses()["bob"] == "cancelled"
        top.press("c")
        top.until("nothing to cancel: it has ended:")
        top.press("p")
        top.until("p does nothing to runs")
        assert top.close() == 0


def test_what_happens_is_seen_and_can_be_held(shop: Shop) -> None:
    with running(shop) as top:
        top.until(shop.ids["cat"])
        new = shop.resize.enqueue("new.png").id
        top.until(new)
        top.press(" ")
        top.until("held: space goes on")
        newer = shop.resize.enqueue("newer.png").id
        top.press("\t")
        top.until("> queue")
        assert newer not in top.said
        top.press(" ")
        top.until(newer)
        assert top.close() == 0


@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (80, 24), (200, 60)])
def test_it_fits_narrow_and_wide_terminals(shop: Shop, columns: int, lines: int) -> None:
    add_jobs(shop)
    with running(shop, columns=columns, lines=lines) as top:
        top.until("> status")
        top.until("succeeded")
        assert top.close() == 0


def test_an_interrupt_ends_it_and_leaves_the_terminal_as_it_was(shop: Shop) -> None:
    with running(shop) as top:
        top.until("tab section")
        before = termios.tcgetattr(top._ours)[3] & termios.ECHO
        assert not before
        top.process.send_signal(signal.SIGINT)
        assert top.ended() == 0
        assert termios.tcgetattr(top._ours)[3] & termios.ECHO


def test_without_a_terminal_it_prints_once(shop: Shop) -> None:
    add_jobs(shop)
    found = shop.call("top")
    assert found.exit_code == 0
    assert "\x1b[" not in found.output
    for text in ("queue", "mail", "nightly", shop.ids["bob"], "TimeoutError: mail.example.com did not answer"):
        assert text in found.output
    assert "hunter2" not in found.output


def test_it_is_read_as_json(any_shop: Shop) -> None:
    shown = any_shop.json("top")
    assert set(shown) == {"queues", "jobs", "nodes", "runs"}
    assert {run["id"] for run in shown["runs"]} >= set(any_shop.ids.values())
    assert json.dumps(shown)


def test_its_json_has_numbers_and_times_as_that_of_the_other_verbs(any_shop: Shop) -> None:
    shown = add_jobs(any_shop).json("top")
    queue = next(queue for queue in shown["queues"] if queue["name"] == "default")
    assert (queue["waiting"], queue["delayed"], queue["running"]) == (1, 1, 0)
    assert isinstance(queue["oldest_seconds"], float)
    told = {job["id"]: job["next_run_time"] for job in any_shop.json("jobs", "list")}
    assert {job["id"]: job["next_run_time"] for job in shown["jobs"]} == told
    bob = next(run for run in shown["runs"] if run["id"] == any_shop.ids["bob"])
    assert datetime.fromisoformat(bob["created_at"]).tzinfo is not None
    assert isinstance(bob["duration"], float)


def test_it_shows_how_jobs_fare(shop: Shop) -> None:
    add_jobs(shop).app.pause_job("rare")
    jobs = {job["id"]: job["health"] for job in shop.json("top")["jobs"]}
    assert jobs == {"thumbs": "down", "nightly": "down", "rare": "paused"}


def test_a_store_that_does_not_answer_ends_with_3() -> None:
    found = CliRunner().invoke(main, ["top", "--app", "redis://127.0.0.1:1/0"])
    assert (found.exit_code, "Try: mainspring doctor" in found.stderr) == (3, True)


def test_the_help_shows_an_example() -> None:
    found = CliRunner().invoke(main, ["top", "-h"])
    assert (found.exit_code, "mainspring top --app" in found.output) == (0, True)


def test_names_of_strangers_cannot_draw_on_the_screen(shop: Shop) -> None:
    shop.app.add_job(resize, "interval", hours=1, id="[red]x\x1b[2Jy", args=["a.png"])
    with running(shop) as top:
        top.until("[red]x\\x1b[2Jy")
        assert top.close() == 0
