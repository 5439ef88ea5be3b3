"""Tasks and enqueueing: one call, many, by name, with a function of nobody's; what is refused, and how it is told."""

from __future__ import annotations

import functools
import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.codec import Codec, EncodeError
from mainspring.core.run import Call, Run, Status
from mainspring.core.showing.failures import place_of
from mainspring.errors import ConfigurationError, TaskNotFound
from mainspring.jobstores.base import Answers
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.clock import VirtualClock
from tests.app.kit import EVERYWHERE, KEY, LASTING, LIMIT, LOCAL, MakeApp


def plain(number: int) -> int:
    return number + 1


class Adder:
    def __init__(self, number: int) -> None:
        self.number = number

    def add(self, number: int) -> int:
        return self.number + number


@EVERYWHERE
def test_a_call_is_executed_by_a_worker_and_its_result_comes_back(app: Mainspring) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    handle = double.enqueue(21)
    assert handle.status() is Status.PENDING
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == 42


@EVERYWHERE
def test_a_coroutine_function_is_a_task_like_any_other(app: Mainspring) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    app.start(work=True)
    assert double.enqueue(21).result(timeout=LIMIT) == 42


@EVERYWHERE
def test_thousands_of_calls_come_back_in_the_order_in_which_they_were_given(app: Mainspring) -> None:
    @app.task
    def same(number: int) -> int:
        return number

    handles = app.enqueue_many(same.call(number) for number in range(2500))
    assert app.count(status="pending") == 2500
    app.start(work=True)
    assert [view.result for view in app.wait(handles, timeout=LIMIT)] == list(range(2500))


def test_many_calls_cost_one_round_trip_per_thousand(make_app: MakeApp) -> None:
    class Counting(MemoryJobStore):
        batches: list[int]

        def add_runs(self, runs: Sequence[Run]) -> Answers[str | None]:
            self.batches.append(len(runs))
            return super().add_runs(runs)

    store = Counting()
    store.batches = []
    app = make_app(store)
    app.enqueue_many(app.task(plain).call(number) for number in range(2001))
    assert store.batches == [1000, 1000, 1]


@EVERYWHERE
def test_calls_of_one_batch_wait_in_their_order_whatever_their_options(app: Mainspring) -> None:
    task = app.task(plain)
    special = task.options(unique="once")
    calls = [task.call(0), *(task.call(number) for number in range(1, 250)), special.call(250), task.call(251)]
    handles = app.enqueue_many(calls)
    views = [handle.fetch() for handle in (*handles[:3], *handles[-3:])]
    assert [view.args for view in views] == [(0,), (1,), (2,), (249,), (250,), (251,)]
    times = [view.record.run_at for view in views]
    assert times == sorted(times)
    assert len({handle.id for handle in handles}) == len(calls)


@LASTING
def test_one_call_that_cannot_be_stored_is_named_and_the_others_of_its_batch_are_not_stored(app: Mainspring) -> None:
    task = app.task(plain)
    task.enqueue(0)
    calls = [task.call(number) for number in range(5)] + [task.call(object())]  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"^number in the call of .*plain is an object"):
        app.enqueue_many(calls)
    assert app.count() == 1


@LOCAL
def test_a_listener_that_comes_later_sees_every_run_from_then_on(app: Mainspring) -> None:
    task = app.task(plain)
    task.enqueue(1)
    seen: list[tuple[Any, ...]] = []
    app.on("pre_enqueue", lambda run: seen.append(run.args))
    task.enqueue(2)
    app.enqueue_many([task.call(3), task.call(4)])
    assert seen == [(2,), (3,), (4,)]


@LOCAL
def test_handles_keep_the_order_of_calls_of_which_some_are_executed_inline(app: Mainspring) -> None:
    task = app.task(plain)
    inline = task.options(inline=True)
    handles = app.enqueue_many([task.call(1), inline.call(2), task.call(3), inline.call(4)])
    assert [inline_one.result(timeout=0) for inline_one in handles[1::2]] == [3, 5]
    app.start(work=True)
    assert [handle.result(timeout=LIMIT) for handle in handles] == [2, 3, 4, 5]


@LOCAL
def test_calling_a_task_is_an_ordinary_call(app: Mainspring) -> None:
    task = app.task(plain)
    assert task(1) == 2
    assert app.count() == 0
    assert (task.__name__, task.__wrapped__) == ("plain", plain)  # type: ignore[attr-defined]


@LOCAL
def test_delay_is_another_word_for_enqueue(app: Mainspring) -> None:
    handle = app.task(plain).delay(1)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == 2


@EVERYWHERE
@pytest.mark.parametrize("name", ["math:copysign", "math.copysign"])
def test_with_a_key_anything_importable_is_called_by_its_name(app: Mainspring, name: str) -> None:
    handle = app.enqueue(name, 2, -2)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == -2.0


@LOCAL
def test_a_function_that_is_no_task_can_be_enqueued(app: Mainspring) -> None:
    by_function, built_in = app.enqueue(plain, 1), app.enqueue(math.copysign, 2, -2)
    app.start(work=True)
    assert (by_function.result(timeout=LIMIT), built_in.result(timeout=LIMIT)) == (2, -2.0)


def test_in_memory_callables_without_a_name_can_be_enqueued(make_app: MakeApp) -> None:
    app = make_app()
    handles = [
        app.enqueue(lambda: "lambda"),
        app.enqueue(functools.partial(plain, 1)),
        app.enqueue(Adder(40).add, 2),
    ]
    app.start(work=True)
    assert [handle.result(timeout=LIMIT) for handle in handles] == ["lambda", 2, 42]


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (lambda: None, "lambda"),
        (functools.partial(plain, 1), "partial"),
        (Adder(1).add, "bound to an object"),
    ],
)
def test_on_a_lasting_store_a_callable_without_a_name_is_refused(
    make_app: MakeApp, tmp_path: Path, func: Any, words: str
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(ConfigurationError, match=words):
        app.enqueue(func)
    assert app.count() == 0


def test_a_function_hidden_by_another_of_its_name_is_refused(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")

    def impostor(number: int) -> int:
        return number

    impostor.__qualname__, impostor.__name__ = "plain", "plain"
    with pytest.raises(ConfigurationError, match="leads to"):
        app.enqueue(impostor, 1)


def test_a_function_is_not_taken_for_the_task_of_its_name(make_app: MakeApp) -> None:
    app = make_app()
    app.task(name=f"{__name__}:plain")(Adder(100).add)
    handle = app.enqueue(plain, 1)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == 2


def test_in_memory_a_task_of_another_app_can_be_enqueued(make_app: MakeApp) -> None:
    """That app knows the task by its name, and this one does not."""
    app, other = make_app("memory://"), make_app("memory://", name="other")
    task = other.task(lambda number: number + 1)
    app.start(work=True)
    assert app.enqueue(task, 1).result(timeout=LIMIT) == 2
    assert app.enqueue(task.options(priority=5), 2).result(timeout=LIMIT) == 3


def test_without_a_key_only_registered_tasks_can_be_enqueued_to_a_shared_store(make_app: MakeApp) -> None:
    app = make_app("redis://localhost:1/0")
    for func in ("math:copysign", plain):
        with pytest.raises(TaskNotFound, match="secret_key"):
            app.enqueue(func, 1)


@LOCAL
def test_a_name_that_leads_nowhere_is_told_with_near_matches(app: Mainspring) -> None:
    app.task(name="send_mail")(plain)
    with pytest.raises(TaskNotFound, match="did you mean 'send_mail'"):
        app.enqueue("send_mial", 1)
    with pytest.raises(TaskNotFound, match="copysing"):
        app.enqueue("math:copysing", 1, 2)


@LOCAL
def test_arguments_that_do_not_fit_are_refused_at_once(app: Mainspring) -> None:
    task = app.task(plain)
    for call in (task.enqueue, task.call, functools.partial(app.enqueue, task)):
        with pytest.raises(TypeError, match="takes 1 positional"):
            call(1, 2)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="did you mean 'number'"):
            call(numbr=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="also needs 'number'"):
            call()  # type: ignore[call-arg]
    assert app.count() == 0


def test_an_argument_that_cannot_be_stored_is_refused_with_the_way_to_it(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def take(value: Any) -> None: ...

    with pytest.raises(EncodeError, match=r"^args\[0\]\.deep\[0\] in the call of .*take is an object, which cannot be"):
        take.enqueue({"deep": [object()]})
    with pytest.raises(EncodeError, match=r"^value\[1\] in the call of .*take is an object"):
        take.enqueue(value=[1, object()])
    assert app.count() == 0


@LOCAL
def test_what_is_no_call_is_refused(app: Mainspring) -> None:
    with pytest.raises(TypeError, match=r"task\.call"):
        app.enqueue_many([plain])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        app.enqueue(17)  # type: ignore[call-overload]


def test_two_functions_cannot_be_one_task(make_app: MakeApp) -> None:
    app = make_app()
    app.task(name="one")(plain)
    with pytest.raises(ConfigurationError, match="give one of them name="):
        app.task(name="one")(math.copysign)
    with pytest.raises(TypeError, match="a task already"):
        app.task(app.task(plain))
    with pytest.raises(TypeError, match="a task is a function"):
        app.task("mail")  # type: ignore[call-overload]


def test_functions_that_only_share_a_name_are_not_taken_for_one(make_app: MakeApp) -> None:
    app = make_app()

    def make(number: int) -> Callable[[], int]:
        return lambda: number

    one = app.task(make(1))
    assert app.task(one.func) is not None
    with pytest.raises(ConfigurationError, match="give one of them name="):
        app.task(make(2))
    with pytest.raises(ConfigurationError, match="give one of them name="):
        app.task(name=one.name)(lambda: 3)


def test_a_result_that_cannot_be_stored_fails_its_run_and_says_why(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(retries=3)
    def unstorable() -> object:
        return object()

    app.start(work=True)
    view = unstorable.enqueue().wait(timeout=LIMIT)
    assert (view.status, view.attempt) == (Status.FAILED, 1)
    assert view.error is not None
    assert "object" in view.error.message
    assert place_of(view.error.traceback) == ""  # no frame of ours passes for the place that failed


def test_a_result_is_packed_and_signed_once(make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key="a key to sign results with")
    packed: list[Any] = []
    dumps = Codec.dumps

    def noting(self: Codec, value: Any, context: str) -> bytes:
        packed.append(value)
        return dumps(self, value, context)

    handle = app.task(plain).enqueue(41)
    monkeypatch.setattr(Codec, "dumps", noting)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == 42
    assert [value["result"] for value in packed] == [42]


@LOCAL
def test_a_worker_serves_the_queues_it_is_told_and_no_others(app: Mainspring) -> None:
    task = app.task(plain)
    mail, default = task.options(queue="mail").enqueue(1), task.enqueue(2)
    app.start(work=True, queues=["mail"])
    assert mail.result(timeout=LIMIT) == 2
    app.stop()
    assert default.status() is Status.PENDING
    app.start(work=True)
    assert default.result(timeout=LIMIT) == 3


def test_apps_of_different_names_share_a_store_and_not_their_runs(make_app: MakeApp, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    one, other = make_app(url, secret_key=KEY), make_app(url, name="other", secret_key=KEY)
    handle = one.task(plain).enqueue(1)
    assert (one.count(), other.count()) == (1, 0)
    other.task(plain)
    other.start(work=True)
    mine = other.enqueue(plain, 5)
    assert mine.result(timeout=LIMIT) == 6
    assert handle.status() is Status.PENDING


def test_an_app_without_a_url_is_told_by_the_environment(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_URL", f"sqlite:///{tmp_path}/told.db")
    make_app(None).task(plain).enqueue(1)
    assert (tmp_path / "told.db").exists()
    monkeypatch.delenv("MAINSPRING_URL")
    monkeypatch.chdir(tmp_path)
    make_app(None).task(plain).enqueue(1)
    assert (tmp_path / "mainspring.db").exists()


def test_making_an_app_and_tasks_opens_nothing(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")
    app.task(plain)
    app.task(name="other", queue="mail", retries=2, hook="other")(plain)
    assert list(tmp_path.iterdir()) == []


@LOCAL
def test_an_app_can_be_used_again_after_it_was_closed(app: Mainspring) -> None:
    task = app.task(plain)
    app.start(work=True)
    assert task.enqueue(1).result(timeout=LIMIT) == 2
    app.close()
    handle = task.enqueue(2)
    app.start(work=True)
    assert handle.result(timeout=LIMIT) == 3


@LOCAL
def test_each_run_that_ended_is_a_line_of_the_log_at_info_and_none_above(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(run_id: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if run_id in record.getMessage()]

    app.start(work=True)
    caplog.set_level(logging.WARNING, "mainspring.runs")
    silent = app.enqueue(abs, -1)
    assert silent.result(LIMIT) == 1
    app.stop()
    caplog.set_level(logging.INFO, "mainspring.runs")
    app.start(work=True)
    told = app.enqueue(abs, -2)
    assert told.result(LIMIT) == 2
    app.stop()
    assert lines(silent.id) == []
    [line] = lines(told.id)
    assert re.fullmatch(rf"abs\(-2\) {told.id} succeeded in .+", line)


@LOCAL
def test_an_app_may_keep_runs_that_end_well_out_of_the_log(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    quiet = Mainspring(app.url, name="quiet", log_runs=False)
    caplog.set_level(logging.INFO, "mainspring")
    with quiet:
        quiet.start(work=True)
        good, bad = quiet.enqueue(abs, -1), quiet.enqueue("builtins:abs", "x")
        quiet.wait([good.id, bad.id], LIMIT)
        quiet.stop()
    said = [record.levelname for record in caplog.records if record.name == "mainspring.runs"]
    assert said == ["ERROR"]


@LASTING
def test_a_worker_that_lacks_a_task_names_those_that_end_alike(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    app.task(name="some.long.package.with.tests:hello")(abs)
    now = app.now()
    app.store.add_runs([Run(id="one", call=Call("not_here:hello", (1,)), created_at=now, run_at=now)])
    app.start(work=True)
    deadline = time.monotonic() + LIMIT
    while "this node cannot call 'not_here:hello'" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "did you mean 'some.long.package.with.tests:hello'" in caplog.text
    assert "cannot import 'not_here'" in caplog.text


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
def test_a_delay_is_not_longer_by_the_time_that_opening_the_store_takes(
    url: str, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    app = make_app(url, secret_key=KEY, clock=clock)
    make_store = app._app_store._make_store

    def take_long() -> Any:
        clock.advance(0.8)
        return make_store()

    monkeypatch.setattr(app._app_store, "_make_store", take_long)
    record = app.task(plain).options(delay=10).enqueue(1).fetch().record
    assert record.run_at - record.created_at == 10_000_000
