"""Alerts: each change of a job's health is told once by the fleet, and tried until it is told."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.core.insight.alerts import ALERTS_GROUP, ALERTS_QUEUE, Alert
from mainspring.core.run import Run, Status
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import RunQuery
from mainspring.node.watch.alerts import AlertBook, AlertSender
from tests.node.bench import Bench


class Told:
    """A target that remembers what it is told, or fails."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.fails = False

    def __call__(self, alert: Alert) -> str:
        if self.fails:
            raise ConnectionError("nobody there")
        self.alerts.append(alert)
        return "ok"

    @property
    def words(self) -> list[str]:
        return [f"{alert.job} {alert.before}->{alert.health}" for alert in self.alerts]


@pytest.fixture
def told(bench: Bench, other: Bench) -> Told:
    """A target that both nodes have."""
    target = Told()
    for each in (bench, other):
        book = AlertBook()
        book.add(target, name="told")
        each.node.alerts = book.targets
    return target


def runs(bench: Bench) -> list[Run]:
    return bench.store.find_runs(RunQuery(group=ALERTS_GROUP))


def look(*benches: Bench) -> None:
    for each in benches:
        each.link.janitor.health.look()


def send(bench: Bench) -> None:
    AlertSender(bench.link)()


def end_one(bench: Bench, **how: Any) -> None:
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    bench.executor.end(run_id, **how)
    bench.link.worker()


def test_trouble_and_its_end_are_told_once_by_all_nodes_together(bench: Bench, other: Bench, told: Told) -> None:
    bench.add(seconds=1000)
    end_one(bench, error=ValueError("no answer"))
    for _ in range(3):
        look(bench, other)
        send(bench)
        send(other)
        bench.clock.advance(60)
    bench.clock.advance(1000)
    end_one(bench, value=1)
    for _ in range(3):
        look(other, bench)
        send(other)
    assert told.words == ["j None->down", "j down->up"]
    assert told.alerts[0].reason == "its last fire failed: ValueError: no answer"


def test_two_nodes_that_see_a_change_at_once_make_one_run_of_it(
    bench: Bench, other: Bench, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(seconds=1000)
    bench.clock.advance(100)
    # Neither sees what the other has stored meanwhile.
    for each in (bench, other):
        monkeypatch.setattr(each.link.janitor.health._alerts, "_read", lambda: None)
    look(bench, other)
    assert len(runs(bench)) == 1


def test_a_node_that_starts_anew_knows_what_was_told(bench: Bench, other: Bench, told: Told) -> None:
    bench.add(seconds=1000)
    end_one(bench, error=ValueError("no"))
    look(bench)
    send(bench)
    bench.clock.advance(1000)
    end_one(bench, value=1)  # and this node is gone
    look(other)
    send(other)
    assert told.words == ["j None->down", "j down->up"]


def test_a_job_that_is_late_and_then_down_is_told_twice(bench: Bench, told: Told) -> None:
    bench.add(seconds=1000, late_after=60, down_after=600)
    for seconds in (100, 400, 200, 400):
        bench.clock.advance(seconds)
        look(bench)
        send(bench)
    assert told.words == ["j None->late", "j late->down"]


def test_a_job_that_was_always_up_is_not_worth_a_word(bench: Bench, told: Told) -> None:
    bench.add(seconds=1000)
    look(bench)
    end_one(bench, value=1)
    look(bench)
    assert runs(bench) == []


def test_an_alert_that_fails_is_tried_again_and_tracked(bench: Bench, told: Told) -> None:
    bench.add(seconds=1000)
    bench.clock.advance(100)
    told.fails = True
    look(bench)
    send(bench)
    [run] = runs(bench)
    assert (run.status, run.failures, run.errors[0].message, run.queue) == (
        Status.PENDING, 1, "nobody there", ALERTS_QUEUE,
    )  # fmt: skip
    send(bench)  # not before its back-off is over
    told.fails = False
    bench.clock.advance(10)
    send(bench)
    [run] = runs(bench)
    assert (run.status, run.result, told.words) == (Status.SUCCEEDED, "ok", ["j None->late"])


def test_an_alert_of_a_node_that_died_while_it_sent_is_sent_by_another(
    bench: Bench, other: Bench, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(seconds=1000)
    bench.clock.advance(100)
    look(bench)
    bench.store.claim([((ALERTS_QUEUE,), 1)], node=bench.node.id, token="t", lease=120.0)  # and it dies
    send(other)
    assert told.alerts == []
    bench.clock.advance(121)
    other.link.heartbeat()
    other.clock.advance(16)
    other.link.heartbeat()
    other.link.janitor()
    send(other)
    assert told.words == ["j None->late"]


def test_a_target_that_this_node_lacks_is_left_to_others(bench: Bench, other: Bench, told: Told) -> None:
    bench.add(seconds=1000)
    bench.clock.advance(100)
    look(bench)
    other.node.alerts = {}
    send(other)
    [run] = runs(bench)
    assert (run.status, run.failures) == (Status.PENDING, 0)
    bench.clock.advance(60)
    send(bench)
    assert told.words == ["j None->late"]


def test_a_target_hears_of_its_jobs_and_states_only(bench: Bench) -> None:
    down, nightly = Told(), Told()
    book = AlertBook()
    book.add(down, name="down", on="down")
    book.add(nightly, name="nightly", jobs=["nightly*"])
    bench.node.alerts = book.targets
    bench.add("other", seconds=1000, late_after=60, down_after=600)
    bench.add("nightly-1", seconds=1000, late_after=60, down_after=600)
    for seconds in (100, 600):
        bench.clock.advance(seconds)
        look(bench)
        for _ in range(4):
            send(bench)
    assert sorted(down.words) == ["nightly-1 None->down", "other None->down"]
    assert nightly.words == ["nightly-1 None->late", "nightly-1 late->down"]


def test_a_coroutine_function_is_awaited(bench: Bench) -> None:
    heard: list[str] = []

    async def hear(alert: Alert) -> None:
        heard.append(alert.text)

    bench.node.alerts = AlertBook([hear]).targets
    bench.add(seconds=1000)
    bench.clock.advance(100)
    look(bench)
    send(bench)
    assert heard == ["j is late: a fire that was due 1 min 40 s ago has not fired"]


def test_wrong_targets_are_refused() -> None:
    book = AlertBook()
    with pytest.raises(ValueError, match="URL such as"):
        book.add("ftp://example.org")
    with pytest.raises(TypeError, match="a URL, a Webhook or a function"):
        book.add(5)
    with pytest.raises(ValueError, match="on 'late', 'down' and 'up', not on 'paused'"):
        book.add("https://example.org/a", on="paused")
    book.add("https://example.org/a")
    with pytest.raises(ConfigurationError, match=r"two targets of alerts are called 'https://example\.org'"):
        book.add("https://example.org/b")
    with pytest.raises(TypeError, match="'secret' is an option of a webhook"):
        book.add(print, secret="x")


def test_a_job_that_is_down_and_then_only_late_is_not_told_again(bench: Bench, told: Told) -> None:
    bench.add(seconds=1000, late_after=60, down_after=600)
    bench.clock.advance(700)
    look(bench)
    send(bench)
    bench.link.scheduler()  # its next fire is not so late
    bench.clock.advance(500)
    look(bench)
    send(bench)
    assert told.words == ["j None->down"]
