"""The broker: a queue by hand."""

from __future__ import annotations

import pytest

from mainspring import Mainspring, tasks
from mainspring.tasks import fetch, get_broker, queue_size
from mainspring.testing.conformance.helpers import lapsed
from tests.tasks import functions


def test_a_broker_is_of_the_default_queue_unless_told_otherwise(app: Mainspring) -> None:
    assert (get_broker().list_key, get_broker("mail").list_key, get_broker().app) == ("default", "mail", app)


def test_a_name_that_no_queue_can_have_is_an_error(app: Mainspring) -> None:
    with pytest.raises(ValueError, match="cannot name a queue"):
        get_broker("a:b")


def test_what_is_enqueued_waits_until_it_is_taken(app: Mainspring) -> None:
    broker = get_broker("mail")
    task_id = broker.enqueue(functions.add, 1, b=2, task_name="sum", q_options={"priority": 3})
    tasks.async_task(functions.nothing, cluster="mail", q_options={"delay": 3600})
    assert (broker.queue_size(), queue_size(broker), broker.lock_size(), queue_size()) == (2, 2, 0, 0)
    [(taken, run)] = broker.dequeue(10)
    assert (taken, run.name, run.args, run.kwargs, run.priority) == (task_id, "sum", (1,), {"b": 2}, 3)
    assert (broker.queue_size(), broker.lock_size()) == (1, 1)


def test_an_empty_queue_gives_nothing(app: Mainspring) -> None:
    assert get_broker().dequeue() == []


def test_what_is_taken_is_given_to_nobody_else(app: Mainspring) -> None:
    get_broker().enqueue(functions.nothing)
    assert len(get_broker().dequeue()) == 1
    assert get_broker().dequeue() == []


def test_an_acknowledged_run_has_succeeded(app: Mainspring) -> None:
    broker = get_broker()
    task_id = broker.enqueue(functions.nothing)
    broker.dequeue()
    assert broker.acknowledge(task_id, {"done": True})
    task = fetch(task_id)
    assert task is not None
    assert (task.success, task.result, task.attempt_count) == (True, {"done": True}, 1)
    assert broker.lock_size() == 0


def test_a_failed_run_is_failed_for_good_whatever_its_retries(app: Mainspring) -> None:
    broker = get_broker()
    task_id = broker.enqueue(functions.nothing, q_options={"retries": 5})
    broker.dequeue()
    assert broker.fail(task_id, "no paper")
    task = fetch(task_id)
    assert task is not None
    assert (task.success, task.result) == (False, "no paper : ")


def test_a_hook_follows_what_is_settled_by_hand(app: Mainspring) -> None:
    broker = get_broker()
    task_id = broker.enqueue(functions.nothing, hook=functions.report)
    broker.dequeue()
    broker.acknowledge(task_id)
    assert [taken for taken, _ in broker.dequeue()] == [f"{task_id}~hook"]


def test_only_who_has_taken_a_run_can_settle_it(app: Mainspring) -> None:
    broker, other = get_broker(), get_broker()
    task_id = broker.enqueue(functions.nothing)
    assert not broker.acknowledge(task_id)
    broker.dequeue()
    assert not other.acknowledge(task_id)
    assert not other.fail(task_id)
    assert not other.fail("unknown")
    assert broker.acknowledge(task_id)
    assert not broker.fail(task_id)


def test_what_is_not_acknowledged_in_time_can_be_recovered(app: Mainspring) -> None:
    broker = tasks.Broker(retry=30)
    task_id = broker.enqueue(functions.nothing)
    broker.dequeue()
    assert lapsed(app.store) == []
    app.store.shift_clock(31)
    assert [run.id for run in lapsed(app.store)] == [task_id]


def test_what_is_not_acknowledged_in_time_is_given_to_the_next_who_asks(app: Mainspring) -> None:
    broker, other = tasks.Broker(retry=1), get_broker()
    ids = [
        broker.enqueue(functions.nothing, q_options={"delivery": word}) for word in ("at_least_once", "at_most_once")
    ]
    assert len(broker.dequeue(2)) == 2
    assert other.dequeue() == []
    app.store.shift_clock(1.1)
    [(taken, run)] = other.dequeue()
    assert (taken, run.attempt) == (ids[0], 2)
    assert not broker.acknowledge(taken)
    assert other.acknowledge(taken)
    assert app.get(ids[1]).reason == "lost"


def test_the_runs_of_a_node_are_not_taken_by_a_broker(app: Mainspring) -> None:
    task_id = get_broker().enqueue(functions.nothing)
    app.store.claim([(["default"], 1)], node="a node", token="t", lease=1.0)
    app.store.shift_clock(2)
    assert get_broker().dequeue() == []
    assert app.get(task_id).status == "running"


def test_what_waits_can_be_deleted(app: Mainspring) -> None:
    broker = get_broker()
    task_id = broker.enqueue(functions.nothing)
    assert broker.delete(task_id)
    assert not broker.delete(task_id)
    assert (broker.queue_size(), app.count()) == (0, 0)


def test_what_is_executed_is_told_to_stop_and_stays(app: Mainspring) -> None:
    broker = get_broker()
    task_id = broker.enqueue(functions.nothing)
    broker.dequeue()
    assert not broker.delete(task_id)
    assert app.get(task_id).record.cancelling


def test_purging_cancels_what_waits_in_this_queue(app: Mainspring) -> None:
    mail, other = get_broker("mail"), get_broker("other")
    ids = [mail.enqueue(functions.nothing) for _ in range(3)]
    other.enqueue(functions.nothing)
    assert mail.purge_queue() == 3
    assert [app.get(task_id).status for task_id in ids] == ["cancelled"] * 3
    assert (mail.queue_size(), other.queue_size()) == (0, 1)


def test_deleting_a_queue_stops_what_is_executed_too(app: Mainspring) -> None:
    broker = get_broker()
    task_id = broker.enqueue(functions.nothing)
    broker.dequeue()
    broker.enqueue(functions.nothing)
    assert broker.delete_queue() == 2
    assert app.get(task_id).record.cancelling
    assert broker.queue_size() == 0


def test_a_broker_answers_and_says_what_it_is(app: Mainspring) -> None:
    broker = get_broker("mail")
    assert broker.ping() is True
    assert broker.info() == f"queue mail of {app!r}"
    assert repr(broker) == f"<Broker of {broker.info()}>"
