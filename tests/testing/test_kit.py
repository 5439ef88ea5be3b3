"""The kit: an app in memory whose time and work a test steps through."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Needs
from mainspring.codec import EncodeError
from mainspring.errors import Retry, RunFailed
from mainspring.testing import Kit
from tests.docs.pages import blocks_of

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    with Mainspring(f"sqlite:///{tmp_path}/shop.db", timezone="UTC") as app:
        yield app
    assert not (tmp_path / "shop.db").exists()  # the kit has not touched the app's own store


@pytest.fixture
def kit(app: Mainspring) -> Iterator[Kit]:
    with Kit(app, now=NEW_YEAR) as kit:
        yield kit


def test_nothing_runs_until_the_test_says_so(app: Mainspring, kit: Kit) -> None:
    sent: list[str] = []

    @app.task(name="send")
    def send(to: str) -> None:
        sent.append(to)

    handle = send.enqueue("ann")
    assert (sent, handle.status()) == ([], "pending")
    assert [(run.name, run.status) for run in kit.run_due()] == [("send", "succeeded")]
    assert (sent, kit.run_due()) == (["ann"], [])


def test_what_was_enqueued_can_be_asserted(app: Mainspring, kit: Kit) -> None:
    @app.task(name="send")
    def send(to: str, copy: bool = False) -> None: ...

    @app.task(name="other")
    def other() -> None: ...

    kit.assert_not_enqueued(send)
    send.enqueue("ann", copy=True)
    assert kit.assert_enqueued(send, "ann", copy=True).args == ("ann",)
    assert kit.assert_enqueued("send").kwargs == {"copy": True}
    with pytest.raises(AssertionError, match=r"send\('bob'\) waits 0 times, not once; .*\n  send\('ann', copy=True\)"):
        kit.assert_enqueued(send, "bob")
    with pytest.raises(AssertionError, match=r"send was enqueued:\n  send\('ann', copy=True\)"):
        kit.assert_not_enqueued(send)
    with pytest.raises(AssertionError, match="waits 0 times"):
        kit.assert_enqueued(other)
    send.enqueue("ann", copy=True)
    with pytest.raises(AssertionError, match="waits 2 times"):
        kit.assert_enqueued(send)
    assert [run.name for run in kit.enqueued()] == ["send", "send"]


def test_a_year_of_a_schedule_passes_at_once(app: Mainspring, kit: Kit) -> None:
    days: list[datetime] = []

    @app.schedule("0 9 1 * *", id="monthly")
    def monthly() -> None:
        days.append(kit.now)

    app.jobs.reconcile()
    ended = kit.advance(days=365)
    assert [(day.month, day.day, day.hour) for day in days] == [(month, 1, 9) for month in range(1, 13)]
    assert [run.job_id for run in ended] == ["monthly"] * 12
    assert kit.now == datetime(2027, 1, 1, tzinfo=UTC)


def test_schedules_of_the_code_are_there_from_the_beginning(app: Mainspring) -> None:
    @app.schedule("interval", minutes=10)
    def tidy() -> None: ...

    with Kit(app, now=NEW_YEAR) as kit:
        assert len(kit.advance(hours=1)) == 6


def test_retries_happen_at_their_times(app: Mainspring, kit: Kit) -> None:
    at: list[float] = []

    @app.task(retries=2, backoff=60)
    def flaky() -> str:
        at.append((kit.now - NEW_YEAR).total_seconds())
        if len(at) < 3:
            raise Retry(60)
        return "done"

    handle = flaky.enqueue()
    assert kit.run_due() == []
    assert handle.status() == "pending"
    kit.drain()
    assert (handle.result(), len(at)) == ("done", 3)
    assert at[2] > at[1] > at[0] == 0


def test_a_result_lets_all_run_that_waits(app: Mainspring, kit: Kit) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with app.flow() as flow:
        parts = [flow.add(double.call(number)) for number in range(3)]
        whole = flow.add(total.call([part.output for part in parts]))
    assert whole.result() == 6
    with pytest.raises(RunFailed, match="division by zero"):
        app.task(name="bad")(lambda: 1 / 0).enqueue().result()


def test_a_run_that_cannot_end_is_no_endless_wait(app: Mainspring, kit: Kit) -> None:
    with app.flow() as flow:
        approval = flow.signal("approval")
    with pytest.raises(TimeoutError):
        approval.result()


def test_arguments_go_through_the_real_codec(app: Mainspring, kit: Kit) -> None:
    @app.task
    def take(value: Any) -> str:
        return type(value).__name__

    assert take.enqueue((1, 2)).result() == "tuple"
    with pytest.raises((EncodeError, TypeError), match="object"):
        take.enqueue(object())


def test_delays_and_limits_hold(app: Mainspring, kit: Kit) -> None:
    @app.task
    def later() -> None: ...

    handle = later.options(delay=3600).enqueue()
    assert kit.run_due() == []
    assert kit.advance(3599) == []
    assert [run.id for run in kit.advance(1)] == [handle.id]


def test_time_does_not_go_back_and_a_closed_kit_says_so(app: Mainspring) -> None:
    with Kit(app) as kit, pytest.raises(ValueError, match="time does not go back"):
        kit.advance(-1)
    with pytest.raises(RuntimeError, match="with Kit"):
        kit.run_due()
    assert app.inline is False


def test_a_task_that_enqueues_itself_for_ever_is_named(
    app: Mainspring, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def again() -> None:
        again.enqueue()

    monkeypatch.setattr("mainspring.testing.kit.MOST_TURNS", 20)
    again.enqueue()
    with pytest.raises(RuntimeError, match="does a task enqueue itself"):
        kit.run_due()


SHOP = """
from mainspring import Mainspring, Needs
app = Mainspring("sqlite:///shop.db")

@app.task
def send(to: str) -> str:
    return f"sent to {to}"
"""
TESTS = """
from shop import send

def test_one(mainspring_kit):
    send.enqueue("ann")
    mainspring_kit.assert_enqueued(send, "ann")

def test_two(mainspring_kit):
    mainspring_kit.assert_not_enqueued(send)  # each test begins with an empty store
    assert send.enqueue("bob").result() == "sent to bob"
"""


GUIDED_SHOP = """
from mainspring import Mainspring, Needs
app = Mainspring("sqlite:///shop.db")

@app.task
def send_mail(to: str) -> None: ...

def place_order(number: int) -> None:
    send_mail.enqueue("ann@example.com")

@app.schedule("0 9 1 * *", timezone="UTC")
def report() -> None: ...
"""


def test_the_examples_of_the_guide_pass(tmp_path: Path) -> None:
    blocks = [block.text for block in blocks_of("testing.md", "python")]
    assert len(blocks) == 3
    blocks[1] = blocks[1].replace("test_an_order", "test_another_order")
    (tmp_path / "shop.py").write_text(GUIDED_SHOP)
    (tmp_path / "test_guide.py").write_text("\n".join(blocks))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmainspring_app = shop:app\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mainspring.testing.plugin", "--disable-plugin-autoload"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_gives_each_test_a_kit(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmainspring_app = shop:app\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mainspring.testing.plugin", "--disable-plugin-autoload"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert 'mainspring_app = "MODULE:APP"' in done.stdout


def test_each_kit_has_resources_of_its_own() -> None:
    said: list[str] = []
    app = Mainspring("memory://")

    @app.resource
    def pool() -> Iterator[str]:
        said.append("open")
        yield "pool"
        said.append("close")

    @app.task
    def work(using: str = Needs(pool)) -> str:
        return using

    for _ in range(2):
        with Kit(app) as kit:
            work.enqueue()
            work.enqueue()
            assert [run.result for run in kit.run_due()] == ["pool", "pool"]
    assert said == ["open", "close"] * 2
