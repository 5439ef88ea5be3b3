"""Tasks that had another name: stored calls, jobs and schedules find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import ConfigurationError
from tests.app.kit import KEY, LIMIT


def app_on(folder: Path) -> Mainspring:
    return Mainspring(f"sqlite:///{folder}/jobs.db", secret_key=KEY, timezone="UTC")


def greet(name: str) -> str:
    return f"hello, {name}"


def test_a_run_that_waits_under_the_old_name_is_executed(tmp_path: Path) -> None:
    with app_on(tmp_path) as before:
        run_id = before.task(name="shop:hello")(greet).enqueue("ann").id
    with app_on(tmp_path) as after:
        task = after.task(name="shop:greet", aliases=["shop:hello"])(greet)
        after.start(work=True)
        assert after.handle(run_id).result(timeout=LIMIT) == "hello, ann"
        assert after.enqueue("shop:hello", "bob").result(timeout=LIMIT) == "hello, bob"
        assert [each.name for each in after.tasks if each.func is greet] == ["shop:greet"]
        assert task.enqueue("eve").fetch().task == "shop:greet"


def test_a_schedule_takes_the_new_name_and_keeps_its_next_time(tmp_path: Path) -> None:
    with app_on(tmp_path) as before:
        before.schedule("interval", minutes=7, args=["ann"])(before.task(name="shop:hello")(greet))
        before.reconcile()
        due = before.get_job("shop:hello").next_run_time
    with app_on(tmp_path) as after:
        task = after.task(name="shop:greet", aliases=["shop:hello"])(greet)
        after.schedule("interval", minutes=7, args=["ann"])(task)
        done = after.reconcile()
        assert (done.added, done.gone) == (["shop:greet"], [])
        assert [(job.id, job.next_run_time) for job in after.jobs()] == [("shop:greet", due)]
        assert after.reconcile().unchanged == ["shop:greet"]


def test_an_alias_cannot_be_the_name_of_another_task() -> None:
    app = Mainspring("memory://")
    app.task(name="shop:other")(len)
    with pytest.raises(ConfigurationError, match="two functions have the task name 'shop:other'"):
        app.task(name="shop:greet", aliases=["shop:other"])(greet)
