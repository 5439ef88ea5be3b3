"""Errors by kind, tasks by cost, when a run should start, marks, changes, what a node says of itself."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.showing import searching
from mainspring.core.showing.failures import in_common
from mainspring.jobstores.values import NodeInfo, sign_of_life_seconds
from mainspring.node.heartbeat import describe
from tests.app.kit import LIMIT, LOCAL, Gate, MakeApp
from tests.waiting import until


def torn(order: int, token: str = "") -> None:
    raise ValueError("the page is torn")


def burnt() -> None:
    raise KeyError("ash")


def fine(n: int) -> int:
    return n


@LOCAL
def test_errors_are_grouped_by_type_and_place_newest_first(app: Mainspring) -> None:
    app.start(work=True)
    app.wait([app.enqueue(torn, number) for number in (1, 2)], LIMIT)
    app.wait([app.enqueue(burnt)], LIMIT)
    page = app.errors()
    assert [(group.type, group.count) for group in page.groups] == [("KeyError", 1), ("ValueError", 2)]
    assert page.complete
    assert page.groups[1].place == "test_numbers.py:torn"
    assert len(page.groups[1].times) == 2


@LOCAL
def test_a_group_is_found_by_its_key_with_its_runs(app: Mainspring) -> None:
    app.start(work=True)
    handles = [app.enqueue(torn, number, token="hunter2") for number in (7, 7)]
    app.wait(handles, LIMIT)
    key = app.errors().groups[0].key
    found = app.error(key)
    assert found is not None
    group, runs = found
    assert group.key == key
    assert {run.id for run in runs} == {handle.id for handle in handles}
    assert app.error("nobody") is None
    common = dict(in_common(runs, lambda run: torn))
    assert (common["arg.order"], common["message"]) == ("7", "the page is torn")
    assert "hunter2" not in str(common)


@LOCAL
def test_an_error_of_a_run_that_is_retried_counts_too(app: Mainspring) -> None:
    task = app.task(retries=3, backoff=3600, name="stubborn")(torn)
    app.start(work=True)
    handle = task.enqueue(1)
    deadline = time.monotonic() + LIMIT
    while not app.get(handle.id).errors:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [group.count for group in app.errors().groups] == [1]
    assert app.errors(timedelta(0)).groups == []


@LOCAL
def test_tasks_are_ordered_by_the_time_they_took(app: Mainspring) -> None:
    app.task(name="fine")(fine)
    app.task(name="never")(fine)
    app.start(work=True)
    app.wait([app.enqueue("fine", number) for number in range(3)], LIMIT)
    app.wait([app.enqueue(burnt)], LIMIT)
    app.stop()
    figures = app.task_figures()
    found = {each.name.rpartition(":")[2]: each for each in figures}
    assert (found["fine"].runs, found["fine"].succeeded, found["fine"].failure_rate) == (3, 3, 0.0)
    assert found["fine"].p50 is not None
    assert found["fine"].p50 <= (found["fine"].p99 or 0)
    assert sum(found["fine"].histogram) == 3
    assert (found["burnt"].known, found["burnt"].failure_rate) == (False, 1.0)
    assert (found["never"].runs, found["never"].p50) == (0, None)


@LOCAL
def test_an_eta_needs_a_slot_and_a_measure(app: Mainspring) -> None:
    handle = app.enqueue(fine, 1)
    assert app.eta(handle) == (None, None)
    later = app.task(name="later", delay=timedelta(hours=2))(fine).enqueue(1)
    start, end = app.eta(later)
    assert start == app.get(later.id).run_at
    assert end is None
    app.start(work=True)
    app.wait([handle], LIMIT)
    run = app.get(handle.id)
    assert app.eta(handle) == (run.started_at, run.finished_at)


@LOCAL
def test_marks_are_kept_newest_first(app: Mainspring) -> None:
    with app.acting("ann"):
        app.mark("deploy 1")
        app.mark("deploy 2")
    assert [(mark.text, mark.by) for mark in app.marks()] == [("deploy 2", "ann"), ("deploy 1", "ann")]
    assert app.marks(timedelta(0)) == []
    with pytest.raises(ValueError, match="say what is marked"):
        app.mark(" ")


def test_a_new_version_of_the_code_is_marked_once(make_app: MakeApp, tmp_path: object) -> None:
    for code in ("1.0", "1.0", "1.1"):
        app = make_app(f"sqlite:///{tmp_path}/jobs.db", code=code)
        app.start()
        assert app.node is not None
        assert describe(app.node.links["default"]).code == code
        app.close()
    assert [mark.text for mark in make_app(f"sqlite:///{tmp_path}/jobs.db").marks()] == ["code 1.1", "code 1.0"]


@LOCAL
def test_changes_name_what_has_changed(app: Mainspring) -> None:
    cursor, kinds = app.changes()
    assert kinds == ("runs", "jobs", "queues", "nodes")
    assert app.changes(cursor).kinds == ()
    handle = app.enqueue(fine, 1)
    cursor, kinds = app.changes(cursor)
    assert kinds == ("runs",)
    app.add_job(fine, "interval", hours=1, args=[1], id="one")
    cursor, kinds = app.changes(cursor)
    assert "jobs" in kinds
    app.pause_queue("default")
    cursor, kinds = app.changes(cursor)
    assert "queues" in kinds
    app.cancel(handle)
    cursor, kinds = app.changes(cursor)
    assert "runs" in kinds
    app.start()
    assert "nodes" in app.changes(cursor, LIMIT).kinds


@LOCAL
@pytest.mark.parametrize(("lease", "after"), [(15.0, 3.75), (60.0, 15.0), (3.0, 2.0)])
def test_a_node_that_says_nothing_more_is_a_change(app: Mainspring, lease: float, after: float) -> None:
    now = app.store.beat()
    said = NodeInfo(id="n", host="h", pid=1, started_at=now, every=sign_of_life_seconds(lease), queues=("default",))
    app.store.beat(said, ttl=600)
    heard = app.store.nodes()[0].beat_at
    cursor = app.changes().cursor
    app.store.shift_clock((heard - app.store.beat()) / SECOND + after - 0.5)
    assert app.changes(cursor).kinds == ()
    app.store.shift_clock(1.0)
    assert app.changes(cursor).kinds == ("nodes",)
    assert [node.state for node in app.nodes()] == ["silent"]


@LOCAL
def test_changes_wait_for_one(app: Mainspring) -> None:
    cursor = app.changes().cursor
    threading.Timer(0.1, app.enqueue, (fine, 1)).start()
    assert app.changes(cursor, LIMIT).kinds == ("runs",)


@LOCAL
def test_a_node_says_what_it_executes(app: Mainspring) -> None:
    gate = Gate()

    @app.task(name="gated")
    def gated() -> None:
        gate.wait()

    app.start(work=True, threads=3)
    handle = gated.enqueue()
    gate.reached()
    assert app.node is not None
    info = describe(app.node.links["default"])
    gate.open()
    assert (info.slots, info.busy, [run.id for run in info.runs]) == (3, 1, [handle.id])
    assert info.rss > 0
    assert info.cluster == ""


@pytest.mark.parametrize("url", ["memory", "sqlite", "postgresql", "redis", "mariadb"], indirect=True)
def test_the_store_tells_its_size_and_latency(app: Mainspring) -> None:
    app.enqueue(fine, 1)
    figures = app.store_figures()
    assert figures.latency >= 0
    assert (figures.size is None) == (app.url == "memory://")
    assert figures.size is None or figures.size > 1000


@LOCAL
def test_errors_are_counted_after_their_runs_are_gone(app: Mainspring) -> None:
    app.start(work=True)
    runs = [app.enqueue(torn, number) for number in (1, 2, 3)]
    app.wait(runs, LIMIT)
    assert app.node is not None
    link = app.node.links["default"]

    def counted() -> bool:  # a moment after the end of a run is stored
        link.hand_over_sums()
        return sum(number for group in app.errors().groups for _, number in group.counted) == 3

    until(counted)
    key = app.errors().groups[0].key
    for run in runs:
        app.delete(run.id)
    (group,) = app.errors().groups
    assert (group.key, group.type, group.place, group.count) == (key, "ValueError", "test_numbers.py:torn", 3)
    assert group.runs == []
    assert sum(number for _, number in group.counted) == 3


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_search_that_has_to_walk_stops_and_goes_on_if_asked(
    make_app: MakeApp, tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else request.getfixturevalue("redis_server").url
    app = make_app(url, name="walks", secret_key="k" * 32)
    rare = app.as_task(fine).options(queue="rare").enqueue(1)
    for number in range(9):
        app.as_task(fine).options(queue="usual").enqueue(number)
    monkeypatch.setattr(searching, "MOST_RUNS_SEARCHED", 5)
    page = app.search("queue:rare", limit=3)
    assert (page.runs, page.complete, page.looked_through) == ([], False, 5)
    page = app.search("queue:rare", limit=3, after=page.next)
    assert ([run.id for run in page.runs], page.complete) == ([rare.id], True)
    assert [run.id for run in app.search("queue:rare", most=None).runs] == [rare.id], "nobody limits it"
