"""What follows from a run: chains, gathering, hooks; and what becomes of them when a worker dies in between."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, previous
from mainspring.core.run import Run, Status
from mainspring.core.waiting.followups import FinishedRun
from mainspring.errors import RunCancelled, RunFailed, RunNotFound, TaskNotFound
from tests.app.kit import EVERYWHERE, KEY, LIMIT, LOCAL, MakeApp

SEEN: list[FinishedRun] = []


def same(value: Any) -> Any:
    return value


def fail(text: str) -> None:
    raise ValueError(text)


def remember(run: FinishedRun) -> str:
    SEEN.append(run)
    return f"saw {run.id}"


@pytest.fixture(autouse=True)
def _forget() -> Iterable[None]:
    SEEN.clear()
    yield
    SEEN.clear()


# -- chains ------------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_chain_runs_one_call_after_another(app: Mainspring) -> None:
    order: list[int] = []

    @app.task
    def note(number: int) -> int:
        order.append(number)
        return number

    handles = app.chain([note.call(number) for number in range(5)])
    app.start(work=True)
    assert handles[-1].result(timeout=LIMIT) == 4
    assert order == [0, 1, 2, 3, 4]
    assert [handle.result(timeout=0) for handle in handles] == order


@EVERYWHERE
def test_a_chain_ends_with_the_first_call_that_fails_and_waiting_for_a_later_one_says_so(app: Mainspring) -> None:
    task, bad = app.task(same), app.task(fail)
    handles = app.chain([task.call(1), bad.call("torn"), task.call(2), task.call(3)])
    app.start(work=True)
    with pytest.raises(RunFailed, match="torn") as caught:
        handles[-1].result(timeout=LIMIT)
    assert caught.value.run_id == handles[1].id
    assert handles[0].result(timeout=0) == 1
    assert [handle.status() for handle in handles] == ["succeeded", "failed", "cancelled", "cancelled"]
    assert "torn" in (handles[-1].fetch().reason or "")


@EVERYWHERE
def test_a_chain_goes_on_when_its_failed_call_is_sent_back(app: Mainspring) -> None:
    broken = [True]

    @app.task
    def mend() -> None:
        if broken:
            raise ValueError

    task = app.task(same)
    handles = app.chain([task.call(1), mend.call(), task.call(3)])
    app.start(work=True)
    with pytest.raises(RunFailed):
        handles[2].result(timeout=LIMIT)
    broken.clear()
    handles[1].retry()
    assert handles[2].result(timeout=LIMIT) == 3


@LOCAL
def test_a_cancelled_chain_is_told_to_whoever_waits_for_a_later_call(app: Mainspring) -> None:
    task = app.task(same)
    handles = app.chain([task.call(number) for number in range(3)])
    with pytest.raises(TimeoutError):
        handles[2].result(timeout=0)
    handles[0].cancel()
    with pytest.raises(RunCancelled):
        handles[2].result(timeout=LIMIT)


@LOCAL
def test_each_call_of_a_chain_keeps_its_own_options(app: Mainspring) -> None:
    task = app.task(same)
    calls = [task.call(1), task.options(queue="mail", retries=3, priority=5, name="second", delay=0.01).call(2)]
    first, second = app.chain(calls, group="both")
    app.start(work=True, queues=["default", "mail"])
    second.result(timeout=LIMIT)
    view, before = second.fetch(), first.fetch()
    assert (view.queue, view.policy.retries, view.priority, view.name) == ("mail", 3, 5, "second")
    assert before.finished_at is not None
    assert (view.run_at - before.finished_at).total_seconds() >= 0.01  # the delay counts from the end of the first
    assert (first.fetch().group, view.group) == ("both", "both")


@pytest.mark.parametrize("option", [{"unique": "x"}, {"id": "x"}, {"group": "x"}])
def test_an_option_that_a_later_call_cannot_have_is_refused(make_app: MakeApp, option: dict[str, Any]) -> None:
    app = make_app()
    task = app.task(same)
    with pytest.raises(ValueError, match="first call of a chain"):
        app.chain([task.call(1), task.options(**option).call(2)])
    with pytest.raises(ValueError, match="gathered"):
        app.gather([task.options(**option).call(2)])
    with pytest.raises(ValueError, match="at least one"):
        app.chain([])


@EVERYWHERE
@pytest.mark.parametrize("first", ["order/7", "a", "a~x"])
def test_the_steps_of_a_chain_have_ids_that_nobody_else_may_have(app: Mainspring, first: str) -> None:
    task = app.task(same)
    for taken in ("order/8", "order/7/1", "a/1", "a.1"):
        task.options(id=taken).enqueue("other")
    handles = app.chain([task.options(id=first).call(1), task.call(2), task.call(3)])
    with pytest.raises(ValueError, match="cannot end like that of a step"):
        task.options(id=handles[1].id)
    app.start(work=True)
    assert [handle.result(timeout=LIMIT) for handle in handles] == [1, 2, 3]


@EVERYWHERE
def test_a_chain_that_is_known_by_its_key_gives_the_steps_of_the_known_one(app: Mainspring) -> None:
    task = app.task(same)
    known = app.chain([task.options(unique="k").call(1), task.call(2)])
    handles = app.chain([task.options(unique="k").call(3), task.call(4), task.call(5)])
    assert handles[:2] == known
    with pytest.raises(RunNotFound):  # the known chain is shorter
        handles[2].result(timeout=LIMIT)
    assert app.count() == 2
    app.start(work=True)
    assert handles[1].result(timeout=LIMIT) == 2


@LOCAL
def test_a_chain_whose_first_call_is_known_as_a_single_one_has_no_later_ones(app: Mainspring) -> None:
    task = app.task(same)
    task.options(unique="k").enqueue(1)
    handles = app.chain([task.options(unique="k").call(2), task.call(3)])
    with pytest.raises(RunNotFound):
        handles[1].result(timeout=LIMIT)
    with pytest.raises(RunNotFound):
        app.handle(f"{handles[0].id}~hook").result(timeout=LIMIT)


@LOCAL
def test_all_steps_of_a_long_chain_can_be_waited_for_together_or_one_by_one(app: Mainspring) -> None:
    task = app.task(same)
    handles = app.chain([task.call(number) for number in range(60)])
    with pytest.raises(TimeoutError):
        app.wait(handles, timeout=0)
    app.start(work=True)
    assert handles[-1].result(timeout=LIMIT) == 59
    assert [view.result for view in app.wait(reversed(handles), timeout=LIMIT)] == list(reversed(range(60)))


@LOCAL
def test_a_step_is_waited_for_while_those_before_it_are_not_kept(app: Mainspring) -> None:
    task = app.task(same)
    handles = app.chain([*(task.options(retention=0).call(number) for number in range(30)), task.call(30)])
    app.start(work=True)
    assert handles[-1].result(timeout=LIMIT) == 30


@LOCAL
def test_a_chain_may_be_as_long_as_you_like(app: Mainspring) -> None:
    handles = app.chain([app.task(same).call(number) for number in range(2500)])
    app.start(work=True)
    assert handles[-1].result(timeout=LIMIT * 3) == 2499
    assert {handle.status() for handle in handles} == {Status.SUCCEEDED}


@EVERYWHERE
def test_previous_is_the_result_of_the_call_before(app: Mainspring) -> None:
    task = app.task(same)
    handles = app.chain([task.call(1), task.call([previous, {"again": previous}]), task.call(previous)])
    app.start(work=True)
    assert handles[-1].result(timeout=LIMIT) == [1, {"again": 1}]
    with pytest.raises(ValueError, match="a later call of a chain"):
        app.chain([task.call(previous)])


@pytest.mark.parametrize("run_id", ["order/20261116", "order~20261116", "order~999", "order~" + "9" * 5000, "a~1~hook"])
def test_a_run_that_never_was_is_not_found_whatever_its_id(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    app = make_app()
    asked: list[str] = []
    read = app.store.get_runs

    def get_runs(run_ids: Sequence[str]) -> list[Run | None]:
        asked.extend(run_ids)
        return read(run_ids)

    monkeypatch.setattr(app.store, "get_runs", get_runs)
    with pytest.raises(RunNotFound):
        app.handle(run_id).result(timeout=LIMIT)
    assert len(asked) <= 2000


# -- gathering ---------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_gathering_gives_the_results_in_the_order_of_the_calls(app: Mainspring) -> None:
    task = app.task(same)
    app.start(work=True)
    assert app.gather(task.call(number) for number in range(20)).result(timeout=LIMIT) == list(range(20))


@LOCAL
def test_more_than_a_batch_can_be_gathered_and_so_can_nothing(app: Mainspring) -> None:
    task = app.task(same)
    app.start(work=True)
    assert app.gather(task.call(number) for number in range(1100)).result(timeout=LIMIT) == list(range(1100))
    assert app.gather([]).result(timeout=LIMIT) == []


@EVERYWHERE
def test_gathering_fails_with_the_item_that_failed(app: Mainspring) -> None:
    task, bad = app.task(same), app.task(fail)
    app.start(work=True)
    with pytest.raises(RunFailed, match="torn"):
        app.gather([task.call(1), bad.call("torn"), task.call(3)]).result(timeout=LIMIT)


@LOCAL
def test_gathering_waits_for_items_that_are_tried_again(app: Mainspring) -> None:
    attempts: list[int] = []

    @app.task(retries=2, backoff=[0])
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError
        return "at last"

    app.start(work=True)
    assert app.gather([flaky.call(), app.task(same).call(1)]).result(timeout=LIMIT) == ["at last", 1]


@EVERYWHERE
def test_the_results_of_items_are_kept_until_they_are_collected(app: Mainspring) -> None:
    task = app.task(retention=0.001)(same)
    handle = app.gather([task.call(1), task.call(2)])
    app.start(work=True, queues=["nobody"])
    app.stop()
    app.store.shift_clock(50)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == [1, 2]


@EVERYWHERE
def test_gathered_failures_are_items_if_asked_for(app: Mainspring) -> None:
    task, bad = app.task(same), app.task(fail)
    handle = app.gather([task.call(1), bad.call("torn"), task.call(3)], return_exceptions=True)
    app.start(work=True)
    one, error, three = handle.result(timeout=LIMIT)
    assert (one, three) == (1, 3)
    assert isinstance(error, RunFailed)
    assert (error.run_id, error.type, error.message) == (f"{handle.id}~2", "ValueError", "torn")
    assert "raise ValueError(text)" in error.traceback


@LOCAL
def test_a_cancelled_item_is_an_error_in_the_list(app: Mainspring) -> None:
    task = app.task(same)
    handle = app.gather([task.call(1), task.call(2)], return_exceptions=True)
    app.cancel(f"{handle.id}~2")
    app.start(work=True)
    one, error = handle.result(timeout=LIMIT)
    assert one == 1
    assert isinstance(error, RunCancelled)


@LOCAL
def test_the_items_and_the_list_are_a_flow(app: Mainspring) -> None:
    task = app.task(same)
    handle = app.gather([task.call(1), task.call(2)])
    flow = app.get_flow(handle.id)
    assert [view.id for view in flow.runs] == [f"{handle.id}~1", f"{handle.id}~2", handle.id]
    flow.cancel()
    with pytest.raises(RunCancelled):
        handle.result(timeout=LIMIT)


# -- hooks -------------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_hook_is_called_with_the_run_when_it_has_ended(app: Mainspring) -> None:
    app.start(work=True)
    good = app.task(hook=remember)(same).options(group="g").enqueue([1, 2])
    assert app.handle(f"{good.id}~hook").result(timeout=LIMIT) == f"saw {good.id}"
    (run,) = SEEN
    assert (run.id, run.success, run.result, run.args, run.group) == (good.id, True, [1, 2], ([1, 2],), "g")
    assert run.started_at is not None
    assert run.finished_at is not None


@EVERYWHERE
def test_a_hook_is_told_of_failure_once_and_after_the_last_attempt(app: Mainspring) -> None:
    app.start(work=True)
    bad = app.task(hook=remember, retries=2, backoff=[0])(fail).enqueue("torn")
    app.handle(f"{bad.id}~hook").result(timeout=LIMIT)
    (run,) = SEEN
    assert (run.success, run.status, run.error, run.attempt) == (False, "failed", "ValueError: torn", 3)
    assert run.traceback is not None
    assert "raise ValueError" in run.traceback


@LOCAL
def test_a_hook_is_told_of_a_cancelled_run_too(app: Mainspring) -> None:
    handle = app.task(hook=remember)(same).enqueue(1)
    handle.cancel()
    app.start(work=True)
    app.handle(f"{handle.id}~hook").result(timeout=LIMIT)
    assert SEEN[0].status == "cancelled"


@EVERYWHERE
def test_a_hook_is_told_of_each_end_of_a_run_that_is_sent_back(app: Mainspring) -> None:
    broken = [True]

    @app.task(hook=remember)
    def mend() -> None:
        if broken:
            raise ValueError

    app.start(work=True)
    handle = mend.enqueue()
    app.handle(f"{handle.id}~hook").result(timeout=LIMIT)
    broken.clear()
    handle.retry()
    app.handle(f"{handle.id}~hook2").result(timeout=LIMIT)
    assert [run.status for run in SEEN] == ["failed", "succeeded"]


@EVERYWHERE
def test_purging_a_queue_is_cancelling_each_of_its_runs(app: Mainspring) -> None:
    task = app.task(hook=remember, queue="q", retention=0)(same)
    later = task.options(unique="k", delay=60).enqueue(1)
    now, other = task.enqueue(2), app.task(name="other")(same).enqueue(3)
    assert app.purge("q") == 2
    assert [handle.status().value for handle in (later, now, other)] == ["cancelled", "cancelled", "pending"]
    app.start(work=True, queues=["q"])
    for handle in (later, now):
        app.handle(f"{handle.id}~hook").result(timeout=LIMIT)
    assert {(run.id, run.status) for run in SEEN} == {(later.id, "cancelled"), (now.id, "cancelled")}


@LOCAL
def test_more_than_a_page_is_purged_and_what_follows_is_not(app: Mainspring) -> None:
    task = app.task(hook=remember, queue="q")(same)
    app.enqueue_many(task.call(number) for number in range(1100))
    assert app.purge("q") == 1100
    assert app.count(status="pending", queue="q") == 1100  # the hooks
    assert app.purge("q") == 1100
    assert app.count(status="pending", queue="q") == 0


def test_a_hook_is_given_its_run_whole_however_large_that_is(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
    task = app.task(hook=remember)(same)
    almost = random.Random(1).randbytes(2**20 - 250)
    handles = [task.enqueue(almost), task.enqueue(1), task.enqueue(almost)]
    assert handles[0].cancel()
    assert app.purge("default") == 3  # the two, and the hook of the first
    app.start(work=True)
    app.wait([f"{handle.id}~hook" for handle in handles], timeout=LIMIT)
    assert sorted(len(run.args[0]) if isinstance(run.args[0], bytes) else run.args[0] for run in SEEN) == [
        1,
        len(almost),
    ]


@LOCAL
def test_a_hook_may_be_a_task_and_belong_to_a_job(app: Mainspring) -> None:
    hook = app.task(name="remember")(remember)
    app.add_job(same, "interval", hours=1, args=[7], id="one", hook=hook)
    app.start(work=True)
    handle = app.run_now("one")
    app.handle(f"{handle.id}~hook").result(timeout=LIMIT)
    assert (SEEN[0].job_id, SEEN[0].result) == ("one", 7)


@LOCAL
def test_a_hook_that_fails_harms_nobody(app: Mainspring) -> None:
    app.start(work=True)
    handle = app.task(hook=fail)(same).enqueue(1)
    assert handle.result(timeout=LIMIT) == 1
    with pytest.raises(RunFailed):
        app.handle(f"{handle.id}~hook").result(timeout=LIMIT)


def test_a_hook_that_no_worker_could_call_is_refused_when_it_is_enqueued(make_app: MakeApp) -> None:
    app = make_app("redis://localhost:1/0")
    with pytest.raises(TaskNotFound, match="remember"):
        app.task(hook=remember)(same).enqueue(1)
    with pytest.raises(TaskNotFound, match="remember"):
        app.add_job(app.as_task(f"{__name__}:same"), "interval", hours=1, args=[1], hook=remember)


def test_a_hook_that_would_be_too_large_to_store_does_not_keep_its_run_from_ending(
    make_app: MakeApp, tmp_path: Path
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
    large = random.Random(1).randbytes(700_000)
    app.start(work=True)
    handle = app.task(hook=remember)(same).enqueue(large)
    other = app.task(name="other")(same).enqueue(1)
    view = handle.wait(timeout=LIMIT)
    assert (view.status, len(view.result)) == (Status.SUCCEEDED, 700_000)
    assert other.result(timeout=LIMIT) == 1


def test_errors_too_long_to_be_kept_together_do_not_keep_a_run_from_being_tried_again(
    make_app: MakeApp, tmp_path: Path
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
    chance = random.Random(1)
    signs = [chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(66_000)]

    @app.task(retries=12, backoff=[0])
    def verbose() -> None:
        chance.shuffle(signs)
        raise ValueError("".join(signs))

    app.start(work=True)
    view = verbose.enqueue().wait(timeout=LIMIT)
    assert (view.status, view.attempt, view.failures) == (Status.FAILED, 13, 13)
    assert 1 <= len(view.errors) < 13


@LOCAL
def test_pre_enqueue_is_told_the_ids_under_which_steps_and_items_are_stored(app: Mainspring) -> None:
    told: list[tuple[str, str | None]] = []
    app.on("pre_enqueue", lambda run: told.append((run.id, run.group)))
    task = app.task(same)
    app.start(work=True)
    handles = app.chain([task.call(1), task.call(2), task.call(3)], group="three")
    assert told == [(handle.id, "three") for handle in handles]
    app.wait(handles, LIMIT)
    told.clear()
    gathered = app.gather([task.call(1), task.call(2)])
    assert gathered.result(timeout=LIMIT) == [1, 2]
    assert {run_id: app.get(run_id).group for run_id, _ in told} == dict(told)
    assert len(told) == 2


@LOCAL
def test_a_chain_and_a_gather_of_inline_calls_are_executed_at_once(app: Mainspring) -> None:
    task = app.task(same).options(inline=True)
    handles = app.chain([task.call(1), task.call(2)])
    assert [handle.fetch().result for handle in handles] == [1, 2]
    assert app.gather([task.call(1), task.call(2)]).fetch().result == [1, 2]
    assert app.count() == 0


@LOCAL
def test_calls_of_which_only_some_are_inline_cannot_be_chained_or_gathered(app: Mainspring) -> None:
    task = app.task(same)
    calls = [task.options(inline=True).call(1), task.call(2)]
    for verb in (app.chain, app.gather):
        with pytest.raises(ValueError, match="all together or not at all"):
            verb(calls)
    assert app.count() == 0
