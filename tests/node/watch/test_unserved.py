"""A queue with runs that wait and that no living node serves is said to be so: once, by one node."""

from __future__ import annotations

import logging

import pytest

from mainspring.core.run import Call, Run
from tests.node.bench import Bench


def enqueue(bench: Bench, queue: str, run_id: str = "r") -> None:
    bench.store.add_runs([Run(id=run_id, call=Call("shop:send"), queue=queue, run_at=bench.clock.now())])


def look(bench: Bench) -> None:
    bench.link.heartbeat()
    bench.link.janitor.unserved.look()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "mainspring.janitor"]


def test_it_is_said_once_and_again_only_if_it_was_over_in_between(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.janitor")
    enqueue(bench, "mail")
    bench.clock.advance(12)
    look(bench)
    look(bench)

    assert said(caplog) == [
        "queue 'mail' has 1 run waiting, the oldest for 12 s, and no living node serves it; "
        "start a worker for it: mainspring worker MODULE:APP -Q mail (workers serve .default)"
    ]
    bench.node.queues = {"mail": None}
    look(bench)
    assert said(caplog)[1:] == ["queue 'mail' is served, or empty, again"]
    bench.node.queues = {"other": None}
    look(bench)
    assert len(said(caplog)) == 3


def test_a_run_that_has_just_come_and_a_paused_queue_are_no_reason(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    enqueue(bench, "mail", "a")
    enqueue(bench, "paused", "b")
    bench.store.set_gate("queue:paused", 0)
    look(bench)
    bench.store.set_gate("queue:mail", 0)
    bench.clock.advance(60)
    look(bench)

    assert said(caplog) == []


def test_only_one_of_the_living_nodes_says_it(bench: Bench, other: Bench, caplog: pytest.LogCaptureFixture) -> None:
    enqueue(bench, "mail")
    bench.clock.advance(12)
    for node in (bench, other):
        node.link.heartbeat()
    for node in (bench, other):
        look(node)

    assert len(said(caplog)) == 1


def test_the_janitor_looks_now_and_then(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    enqueue(bench, "mail")
    bench.link.heartbeat()
    bench.link.janitor()
    assert said(caplog) == []
    bench.clock.advance(11)
    bench.link.heartbeat()
    bench.link.janitor()
    assert len(said(caplog)) == 1
