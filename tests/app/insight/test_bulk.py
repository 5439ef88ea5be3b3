"""Acts on all runs that match a filter."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.app.insight.bulk import Bulk
from mainspring.app.insight.bulk_work import LostBulk, bulk_run
from mainspring.app.waiting import hub
from mainspring.core.instants import from_us
from mainspring.core.run import Status
from mainspring.core.showing.filters import FilterError
from mainspring.events import EVENT_RUN_CANCELLED
from tests.app.kit import KEY, LIMIT, LOCAL, MakeApp


def fill(app: Mainspring, number: int, queue: str = "default") -> list[str]:
    @app.task(name=f"fill_{queue}", queue=queue)
    def fill_it(n: int) -> int:
        return n

    return [handle.id for handle in app.enqueue_many(fill_it.call(n) for n in range(number))]


@LOCAL
def test_a_trial_counts_and_changes_nothing(app: Mainspring) -> None:
    ids = fill(app, 5)
    app.cancel(ids[0])
    trial = app.apply("cancel", "queue:default", trial=True)
    assert trial.wait(LIMIT)
    assert (trial.state, trial.changed, dict(trial.left)) == ("done", 4, {"it is cancelled": 1})
    assert app.count(status="pending") == 4


@LOCAL
def test_an_action_touches_exactly_the_runs_that_were_there_when_it_was_asked_for(app: Mainspring) -> None:
    fill(app, 1200)
    bulk = app.apply("cancel", "status:waiting")
    later = fill(app, 30)
    assert bulk.wait(10 * LIMIT)  # 1,200 transactions take their time on a busy machine
    assert (bulk.state, bulk.changed, bulk.looked_at) == ("done", 1200, 1200)
    assert {run.id for run in app.find(status="pending", limit=100)} == set(later)


@LOCAL
def test_runs_made_after_a_moment_are_left_alone(app: Mainspring) -> None:
    fill(app, 3)
    bulk = app.apply("cancel", "status:pending", before=timedelta(hours=1))
    assert bulk.wait(LIMIT)
    assert bulk.changed == 0
    assert app.count(status="pending") == 3


@LOCAL
def test_the_result_by_reason_adds_up(app: Mainspring) -> None:
    ids = fill(app, 10)
    for run_id in ids[:4]:
        app.cancel(run_id)
    bulk = app.apply("retry", "queue:default")
    assert bulk.wait(LIMIT)
    assert bulk.changed == 4
    assert bulk.left == {"it is pending": 6}
    assert bulk.changed + bulk.left.total() == bulk.looked_at == 10


@LOCAL
def test_stopping_leaves_the_rest_as_it_is(app: Mainspring) -> None:
    fill(app, 20)
    reached, go_on = threading.Event(), threading.Event()

    def slowly(event: object) -> None:
        reached.set()
        assert go_on.wait(LIMIT)

    app.on(EVENT_RUN_CANCELLED, slowly)
    bulk = app.apply("cancel", "status:pending")
    assert reached.wait(LIMIT)
    assert app.stop_bulk(bulk.id)
    go_on.set()
    assert bulk.wait(LIMIT)
    assert bulk.state == "stopped"
    assert app.count(status="cancelled") == bulk.changed == 1
    assert app.count(status="pending") == 19
    assert not app.stop_bulk(bulk.id)


@LOCAL
def test_the_audit_says_who_did_it_to_how_many_and_why(app: Mainspring) -> None:
    fill(app, 3)
    with app.acting("ann", "a wrong import"):
        bulk = app.apply("cancel", "status:pending queue:default")
    assert bulk.wait(LIMIT)
    (entry,) = app.audit(kind="runs", target="status:pending queue:default")
    assert (entry.verb, entry.by, entry.why, entry.details["runs"]) == ("cancel_all", "ann", "a wrong import", 3)
    assert {each.by for each in app.audit()} == {"ann"}


@LOCAL
def test_options_reach_the_verb(app: Mainspring) -> None:
    fill(app, 3)
    assert app.apply("move", "status:pending", queue="slow").wait(LIMIT)
    assert app.count(queue="slow", status="pending") == 3
    assert app.apply("prioritize", "queue:slow", priority=7).wait(LIMIT)
    assert {run.priority for run in app.find(queue="slow")} == {7}
    assert app.apply("cancel", "queue:slow").wait(LIMIT)
    assert app.apply("delete", "queue:slow").wait(LIMIT)
    assert app.count(queue="slow") == 0


@LOCAL
def test_an_action_is_found_by_its_id_while_and_after_it_works(app: Mainspring) -> None:
    fill(app, 1)
    bulk = app.apply("cancel", "status:pending")
    assert bulk.wait(LIMIT)
    assert app.bulk(bulk.id) is bulk
    assert app.bulk("nobody") is None
    assert app.find(queue="default", limit=1)[0].status is Status.CANCELLED
    assert bulk.to_dict()["changed"] == 1


@LOCAL
def test_what_cannot_be_asked_for_is_refused_at_once(app: Mainspring) -> None:
    with pytest.raises(ValueError, match="did you mean 'retry'"):
        app.apply("rety", "status:failed")
    with pytest.raises(TypeError, match="needs queue="):
        app.apply("move", "status:pending")
    with pytest.raises(TypeError, match="takes no queue="):
        app.apply("delete", "status:failed", queue="x")
    with pytest.raises(FilterError):
        app.apply("retry", "status:faild")


BEGINNER = """
import sys, time
from mainspring import Mainspring
from mainspring.events import EVENT_RUN_CANCELLED

app = Mainspring(sys.argv[1], name=sys.argv[2], secret_key=sys.argv[3], lease=1.0)
cancelled = []

def notice(event):
    cancelled.append(event)
    if len(cancelled) == 150:
        print(bulk.id, flush=True)
        time.sleep(600)
    elif len(cancelled) == 100:
        time.sleep(1.1)  # so that it notes how far it has come

app.on(EVENT_RUN_CANCELLED, notice)
with app.acting("ann", "a wrong import"):
    bulk = app.apply("cancel", "queue:default")
bulk.wait()
"""


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
def test_an_action_goes_on_in_a_node_when_its_process_is_killed(
    url: str, app: Mainspring, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.app.insight.bulk.ADOPT_SECONDS", 0.1)
    fill(app, 300)
    command = [sys.executable, "-c", BEGINNER, url, app.name, KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as beginner:
        assert beginner.stdout is not None
        bulk_id = beginner.stdout.readline().strip()
        beginner.kill()
    begun = app.bulk(bulk_id)
    assert begun is not None
    assert begun.running
    assert 100 <= begun.changed < 150, "it has noted how far it had come"
    node = make_app(url, name=app.name, secret_key=KEY, lease=1.0)
    later = fill(app, 5)
    node.start()
    assert begun.wait(LIMIT)
    assert (begun.state, begun.changed + begun.left.total(), begun.looked_at) == ("done", 300, 300)
    assert app.count(queue="default", status="cancelled") == 300
    assert {run.id for run in app.find(status="pending", queue="default")} == set(later)
    (entry,) = app.audit(kind="runs", target="queue:default")
    assert (entry.verb, entry.by, entry.why) == ("cancel_all", "ann", "a wrong import")
    assert not app.stop_bulk(bulk_id)


@LOCAL
def test_an_action_that_another_process_carries_out_is_stopped_from_here(app: Mainspring) -> None:
    fill(app, 3)
    app.store.add_runs([app.store.pack_run(bulk_run(*_begun_elsewhere(app)))])
    waiting = app.bulk("elsewhere")
    assert waiting is not None
    assert (waiting.running, waiting.wait(0.0), waiting.filter) == (True, False, "queue:default")
    assert app.stop_bulk("elsewhere")
    assert waiting.wait(LIMIT)
    assert waiting.state == "stopped"
    assert app.count(queue="default", status="pending") == 3


def _begun_elsewhere(app: Mainspring) -> tuple[Bulk, int, dict[str, Any], str, str, int]:
    now = app.now()
    return Bulk("cancel", "queue:default", from_us(now), False, "elsewhere"), now, {}, "ann", "", now


@LOCAL
def test_whoever_waits_for_an_action_elsewhere_sits_at_the_hub(app: Mainspring) -> None:
    app.store.add_runs([app.store.pack_run(bulk_run(*_begun_elsewhere(app)))])
    waiting = app.bulk("elsewhere")
    assert waiting is not None
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(waiting.wait, LIMIT)
        _seated(app)
        assert app.cancel("elsewhere")
        assert ended.result(LIMIT)
    assert waiting.state == "stopped"


@LOCAL
def test_async_code_waits_for_an_action_too(app: Mainspring) -> None:
    fill(app, 3)

    async def wait() -> list[Bulk]:
        trial = await app.aio.apply("cancel", "queue:default", trial=True)
        assert await trial.wait_async(LIMIT)
        app.store.add_runs([app.store.pack_run(bulk_run(*_begun_elsewhere(app)))])
        elsewhere = await app.aio.bulk("elsewhere")
        assert elsewhere is not None
        assert not await elsewhere.wait_async(0.0)
        waiting = asyncio.create_task(elsewhere.wait_async(LIMIT))
        await asyncio.to_thread(_seated, app)
        await app.aio.cancel("elsewhere")
        assert await waiting
        here = await app.aio.apply("cancel", "queue:default")
        assert await here.wait_async(LIMIT)
        return [trial, elsewhere, here]

    assert [(bulk.state, bulk.changed) for bulk in asyncio.run(wait())] == [("done", 3), ("stopped", 0), ("done", 3)]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_action_that_another_process_was_first_to_take_ends_here_too(
    url: str, app: Mainspring, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(app, 3)
    monkeypatch.setattr(app.bulks, "_begin", lambda work: None)
    bulk = app.apply("cancel", "queue:default")
    begun = app.bulk(bulk.id)
    assert begun is not None
    assert (begun.running, bulk.wait(0.0)) == (True, False)
    make_app(url, name=app.name, secret_key=KEY).bulks._work()
    assert bulk.wait(LIMIT)
    assert (bulk.state, bulk.changed) == ("done", 3)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_action_that_this_process_has_lost_ends_for_those_who_wait_here(
    url: str, app: Mainspring, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(app, 3)
    reached, go_on = threading.Event(), threading.Event()

    def lose(*args: Any) -> str:
        reached.set()
        assert go_on.wait(LIMIT)
        raise LostBulk

    monkeypatch.setattr(app.bulks, "_change", lose)
    bulk = app.apply("cancel", "queue:default")
    assert reached.wait(LIMIT)
    other = make_app(url, name=app.name, secret_key=KEY, lease=1.0)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(bulk.wait, LIMIT)
        go_on.set()
        while not ended.done():
            other.bulks._work()
            time.sleep(0.01)
        assert ended.result()
    assert (bulk.state, bulk.changed) == ("done", 3)


def _seated(app: Mainspring) -> None:
    """Return when somebody sits at the hub of the app's store."""
    deadline = time.monotonic() + LIMIT
    while not hub.hub_of(app.store)._seats:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@LOCAL
def test_a_run_that_was_sent_back_and_failed_again_is_not_sent_back_twice(app: Mainspring) -> None:
    (run_id,) = fill(app, 1)
    app.cancel(run_id)
    begun = _begun_elsewhere(app)
    app.store.add_runs([app.store.pack_run(bulk_run(Bulk("retry", "", begun[0].before, False, "old"), *begun[1:]))])
    app.retry(run_id)
    app.cancel(run_id)
    app.bulks._work()
    ended = app.bulk("old")
    assert ended is not None
    assert (ended.changed, dict(ended.left)) == (0, {"it ended meanwhile": 1})


@LOCAL
def test_an_action_whose_lease_is_over_at_its_end_is_counted_and_recorded_once(app: Mainspring) -> None:
    fill(app, 3)
    cancelled: list[object] = []

    def lose_it_at_the_last_run(event: object) -> None:
        cancelled.append(event)
        if len(cancelled) == 3:
            app.store.shift_clock(app.lease + 1)
            app.bulks._claims._give_back()

    app.on(EVENT_RUN_CANCELLED, lose_it_at_the_last_run)
    asked = app.apply("cancel", "queue:default")
    assert asked.wait(LIMIT)
    ended = app.bulk(asked.id)
    assert ended is not None
    assert ended.wait(LIMIT)  # this process notes it after its run has ended
    assert (ended.state, ended.looked_at, dict(ended.left)) == ("done", 3, {"it is cancelled": 3})
    assert len(app.audit(kind="runs", target="queue:default")) == 1
