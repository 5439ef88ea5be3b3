"""What the store says of a run's end is believed only if somebody who holds the key has signed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.app.handle import RunHandle
from mainspring.codec import Codec
from mainspring.core.policy import Policy
from mainspring.core.run import Condition, Outcome, Report, Result, Run, Status, describe
from mainspring.core.transitions import cancel, conclude, recover
from mainspring.errors import Cancel, RunCancelled, RunFailed, UnverifiedOutcome, WorkerDied
from mainspring.jobstores.opening import open_store
from mainspring.jobstores.records.rows import RunRow, SettleRow
from mainspring.jobstores.records.store import RecordStore
from mainspring.tasks.fetching import FetchedTask
from tests.app.kit import KEY, LASTING, LIMIT, MakeApp
from tests.cluster.kit import wait_until

pytestmark = LASTING

FORGED = [
    {"status": Status.SUCCEEDED},
    {"status": Status.SUCCEEDED, "result": "forged"},
    {"status": Status.FAILED, "reason": "forged"},
    {"status": Status.CANCELLED, "reason": "forged"},
    {"status": Status.MISSED, "reason": "forged"},
]


def same(value: object = None) -> object:
    return value


def fail(text: str) -> None:
    raise ValueError(text)


def give_up() -> None:
    raise Cancel("not needed")


@contextmanager
def stranger(app: Mainspring) -> Iterator[RecordStore]:
    """Open an app's store as somebody who can write to it and does not have the key."""
    assert isinstance(app.url, str)
    where = {"name": app.name} if app.url.startswith("redis") else {"tablename": f"{app.name}_jobs"}
    store = open_store(app.url, codec=Codec(), **where)
    assert isinstance(store, RecordStore)
    try:
        yield store
    finally:
        store.shutdown()


def record(app: Mainspring, handle: RunHandle[object]) -> Run:
    found = app.store.get_runs([handle.id])[0]
    assert found is not None
    return found


def rewrite(app: Mainspring, run_id: str, change: Callable[[RunRow], RunRow]) -> None:
    """Change the record of a run that has ended, byte for byte."""
    with stranger(app) as store:
        (row,) = store._run_rows([run_id])
        assert store._settle_rows([SettleRow(change(row), Condition.FINISHED, [])]) == [True]
    if str(app.url).startswith("redis"):  # an end does not change how often a run was started: do it by hand
        with redis.Redis.from_url(str(app.url)) as client:
            (key,) = client.scan_iter(f"*r:{run_id}", 1000)
            client.hset(key, "a", str(change(row).attempt))


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: f"{forged['status']} {len(forged)}")
def test_an_end_that_somebody_without_the_key_has_written_is_not_believed(
    app: Mainspring, forged: dict[str, object]
) -> None:
    handle: RunHandle[object] = app.enqueue(same, "honest")
    run = record(app, handle)
    with stranger(app) as store:
        ended = replace(run, finished_at=run.created_at, **forged)
        assert store.settle([Outcome(ended, Condition.WAITING)]) == [True]
    with pytest.raises(UnverifiedOutcome, match="cannot be verified and is not believed"):
        handle.result(timeout=LIMIT)
    view = handle.fetch()
    assert (view.status, view.result) == (forged["status"], None)
    assert "not signed" in str(view.unverified)
    assert "unverified" in repr(view)
    assert not FetchedTask(app, view).success


def test_a_gathering_does_not_believe_an_item_that_a_stranger_has_ended(app: Mainspring) -> None:
    task = app.task(same)
    handle = app.gather([task.call(1), task.call(2)])
    (item,) = app.store.get_runs([f"{handle.id}~1"])
    assert item is not None
    with stranger(app) as store:
        ended = replace(item, status=Status.SUCCEEDED, finished_at=item.created_at)
        assert store.settle([Outcome(ended, Condition.WAITING)]) == [True]
    app.start(work=True)
    with pytest.raises(RunFailed, match=r"UnverifiedOutcome.*is not believed"):
        handle.result(timeout=LIMIT)


@pytest.mark.parametrize("part", ["status", "attempt", "seal"])
def test_a_seal_holds_for_one_run_one_attempt_and_one_end_only(app: Mainspring, part: str) -> None:
    app.start(work=True)
    failed: RunHandle[object] = app.enqueue(fail, "honest")
    good: RunHandle[object] = app.enqueue(same, "of another run")
    failed.wait(timeout=LIMIT)
    good.result(timeout=LIMIT)
    app.stop()
    with stranger(app) as store:
        (other,) = store._run_rows([good.id])
    changes: dict[str, Callable[[RunRow], RunRow]] = {
        "status": lambda row: replace(row, status="succeeded"),
        "attempt": lambda row: replace(row, attempt=row.attempt + 1),
        "seal": lambda row: replace(row, status="succeeded", state=other.state),
    }
    rewrite(app, failed.id, changes[part])
    with pytest.raises(UnverifiedOutcome, match="bad_signature"):
        failed.result(timeout=LIMIT)
    assert good.result(timeout=LIMIT) == "of another run"


def test_the_errors_of_an_attempt_that_is_tried_again_are_no_seal(app: Mainspring) -> None:
    handle: RunHandle[object] = app.enqueue(same, "honest")
    (claimed,) = app.store.claim([(["default"], 1)], node="n", token="t", lease=60).runs
    error = ValueError("once")
    raised = Report(claimed, Result.RAISED, exception=error, error=describe(error, 0, 1))
    again = conclude(replace_policy(raised, retries=1), app.now(), 0.0)
    assert again.run.status is Status.PENDING
    assert app.store.settle([again]) == [True]
    with stranger(app) as store:
        (row,) = store._run_rows([handle.id])
        ended = replace(row, status="succeeded", finished_at=row.created_at)
        assert store._settle_rows([SettleRow(ended, Condition.WAITING, [])]) == [True]
    with pytest.raises(UnverifiedOutcome, match="bad_signature"):
        handle.result(timeout=LIMIT)


def replace_policy(report: Report, **changes: int) -> Report:
    run = replace(report.run, policy=replace(report.run.policy, **changes))
    return Report(run, report.result, exception=report.exception, error=report.error)


def test_every_honest_end_is_believed(app: Mainspring) -> None:
    app.start(work=True)
    results = {value: app.enqueue(same, value) for value in (None, 7, "text", (1, 2))}
    failed = app.enqueue(fail, "honest")
    stopped = app.enqueue(give_up)
    assert {value: handle.result(timeout=LIMIT) for value, handle in results.items()} == {
        value: value for value in results
    }
    with pytest.raises(RunFailed, match="ValueError: honest"):
        failed.result(timeout=LIMIT)
    with pytest.raises(RunCancelled, match="not needed"):
        stopped.result(timeout=LIMIT)
    app.stop()
    waiting = app.enqueue(same)
    assert waiting.cancel()
    with pytest.raises(RunCancelled):
        waiting.result(timeout=LIMIT)
    assert [run.unverified for run in app.find()] == [None] * 7


def _late(run: Run, now: int) -> Outcome:
    return conclude(Report(run, Result.LATE), now, 0.0)


def _crashed(run: Run, now: int) -> Outcome:
    error = WorkerDied(1, -9)
    report = Report(run, Result.RAISED, exception=error, error=describe(error, now, run.attempt))
    return conclude(replace_delivery(report), now, 0.0)


def _lost(run: Run, now: int) -> Outcome:
    policy = Policy(delivery="at_most_once")
    return replace(recover(replace(run, policy=policy), now), condition=Condition.HELD)


def _stopped(run: Run, now: int) -> Outcome:
    return replace(cancel(run, now), condition=Condition.HELD)


def replace_delivery(report: Report) -> Report:
    run = replace(report.run, policy=Policy(delivery="at_most_once"))
    return Report(run, report.result, exception=report.exception, error=report.error)


@pytest.mark.parametrize("end", [_late, _crashed, _lost, _stopped])
def test_an_end_without_a_result_is_sealed_by_whoever_writes_it(
    app: Mainspring, end: Callable[[Run, int], Outcome]
) -> None:
    handle: RunHandle[object] = app.enqueue(same)
    (claimed,) = app.store.claim([(["default"], 1)], node="n", token="t", lease=60).runs
    assert app.store.settle([end(claimed, app.now())]) == [True]
    with pytest.raises((RunFailed, RunCancelled)):
        handle.result(timeout=LIMIT)
    assert handle.fetch().unverified is None


def test_a_fire_that_was_missed_is_recorded_with_a_seal(app: Mainspring) -> None:
    app.add_job(same, "interval", hours=1, id="job", misfire_grace_time=1)
    app.store.shift_clock(3700)
    app.start()
    wait_until(lambda: app.find(status="missed", job="job"))
    assert [run.unverified for run in app.find(status="missed", job="job")] == [None]


def test_ends_are_believed_after_the_keys_were_rotated(app: Mainspring, make_app: MakeApp) -> None:
    app.start(work=True)
    handle = app.enqueue(same, "kept")
    handle.result(timeout=LIMIT)
    app.stop()
    later = make_app(app.url, name=app.name, secret_key=["a newer key, of enough bytes", KEY])
    assert later.handle(handle.id).result(timeout=LIMIT) == "kept"
    other = make_app(app.url, name=app.name, secret_key="quite another key, as long")
    with pytest.raises(UnverifiedOutcome, match="unknown_key"):
        other.handle(handle.id).result(timeout=LIMIT)


def test_what_one_app_has_signed_is_refused_by_another_with_the_same_key(app: Mainspring, make_app: MakeApp) -> None:
    handle = app.enqueue(same, "for this app")
    other = make_app(app.url, name=f"other{app.name}", secret_key=KEY)
    assert isinstance(app.store, RecordStore)
    assert isinstance(other.store, RecordStore)
    rows = app.store._run_rows([handle.id])
    assert other.store._add_run_rows(rows) == [handle.id]
    other.start(work=True)
    view = other.wait([handle.id], timeout=LIMIT)[0]
    assert view.status is Status.BROKEN
    assert "bad_signature" in str(view.reason)
    assert f"of the app {other.name!r}" in str(view.reason)
