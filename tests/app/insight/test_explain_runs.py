"""Why a run has or has not run: one test for each reason, on every store."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.app.insight.gathering import Gatherer
from mainspring.core.insight.runs import explain_run
from mainspring.core.instants import SECOND
from mainspring.core.plan import MissedFires, Place, Plan, firing
from mainspring.core.policy import Policy
from mainspring.core.run import Beat, Call, Report, Result, Status, describe
from mainspring.core.transitions import conclude, recover
from mainspring.errors import Cancel, Retry, RunNotFound
from mainspring.jobstores.base import JobStore
from mainspring.testing.conformance.helpers import (
    add_after,
    add_job,
    add_run,
    behind,
    break_,
    claim,
    current,
    due_one,
    fail,
    fire,
    make_run,
    settle,
    start,
    succeed,
)
from tests.app.insight.kit import EVERY_STORE, TASK, announce
from tests.app.kit import LOCAL

_LENGTH = re.compile(r"(?:under )?\d[\d.,]*(?: (?:ms|s|min|h|d)\b)?(?: \d+ (?:s|min|h)\b)?")


def said(app: Mainspring, run_id: str) -> str:
    """Return the sentence about a run, and check what holds for all."""
    told = app.explain(run_id)
    assert (told.kind, told.id) == ("run", run_id)
    assert told.sentence.endswith(".")
    again = app.handle(run_id).explain()  # a second later, perhaps
    assert (again.state, _LENGTH.sub("n", again.sentence)) == (told.state, _LENGTH.sub("n", told.sentence))
    return f"[{told.state}] {told.sentence}"


@EVERY_STORE
def test_a_run_waits_because_its_queue_is_paused(app: Mainspring) -> None:
    add_run(app.store, "r")
    announce(app)
    app.pause_queue("default")
    assert said(app, "r").startswith("[waiting] Waits: queue 'default' is paused")
    assert app.explain("r").actions == ("queues resume default",)


@EVERY_STORE
def test_a_run_waits_because_nobody_serves_its_queue(app: Mainspring) -> None:
    add_run(app.store, "r", queue="mail")
    announce(app)
    assert said(app, "r") == "[waiting] Waits: no living node serves queue 'mail'."
    assert app.explain("r").actions == ("worker MODULE:APP -Q mail",)


@EVERY_STORE
def test_a_run_waits_because_no_node_has_its_code(app: Mainspring) -> None:
    add_run(app.store, "r")
    announce(app, missing=(TASK,))
    assert said(app, "r") == (
        f"[waiting] Waits: web:7, the only node that serves queue 'default', cannot import {TASK}."
    )
    announce(app, "node-2", missing=(TASK,))
    assert said(app, "r") == (f"[waiting] Waits: none of 2 nodes that serve queue 'default' can import {TASK}.")


@EVERY_STORE
def test_a_run_waits_behind_runs_of_higher_priority(app: Mainspring) -> None:
    add_run(app.store, "r")
    for number in range(3):
        add_run(app.store, f"urgent-{number}", priority=5)
    announce(app)
    assert said(app, "r") == "[waiting] Waits behind 3 runs of higher priority; 1 node serves queue 'default'."


@EVERY_STORE
def test_a_run_waits_and_nobody_has_claimed_it_yet(app: Mainspring) -> None:
    add_run(app.store, "earlier", due_in=-20)
    add_run(app.store, "r")
    announce(app)
    announce(app, "node-2")
    assert said(app, "earlier") == "[waiting] Waits: nobody has claimed it yet; 2 nodes serve queue 'default'."
    assert said(app, "r") == (
        "[waiting] Waits: nobody has claimed it yet; 2 nodes serve queue 'default', and 1 run is ahead of it."
    )


@EVERY_STORE
def test_a_run_is_set_for_later_by_its_caller(app: Mainspring) -> None:
    add_run(app.store, "r", due_in=7200)
    assert re.fullmatch(r"\[delayed\] Set for .+ UTC \(in (1 h 59 min|2 h)\) by its caller\.", said(app, "r"))


@EVERY_STORE
def test_a_run_backs_off_after_a_failure(app: Mainspring) -> None:
    run = start(app.store, "r", policy=Policy(retries=4, backoff=(3600.0,)))
    assert settle(app.store, fail(app.store, run, "no answer"))
    assert re.fullmatch(
        r"\[retrying\] Starts again at .+ \(in (59 min \d+ s|1 h)\): it backs off after failure 1 of at most 5: "
        r"ValueError: no answer\.",
        said(app, "r"),
    )


@EVERY_STORE
def test_a_run_asked_to_be_tried_again_later(app: Mainspring) -> None:
    run = start(app.store, "r")
    error = Retry(3600, counted=False)
    report = Report(run, Result.RAISED, exception=error, error=describe(error, run.run_at, 1))
    assert settle(app.store, conclude(report, current(app.store, run).created_at + SECOND, 0.0))
    assert "start 1 raised Retry and asked for that" in said(app, "r")


@EVERY_STORE
def test_a_run_runs_on_a_node_with_its_progress(app: Mainspring) -> None:
    run = start(app.store, "r")
    announce(app)
    told = {"done": 12, "total": 50, "text": "pages"}
    app.store.extend([Beat(run.id, str(run.token), progress=told)], 60.0)
    assert re.fullmatch(r"\[running\] Runs for [\d.]+ m?s on web:7, at 24 % \(pages\)\.", said(app, "r"))


@EVERY_STORE
def test_a_run_of_a_job_runs_longer_than_usual(app: Mainspring) -> None:
    store = app.store
    for number in range(3):
        run = start(store, f"before-{number}", job_id="job")
        assert settle(store, succeed(store, run))
    start(store, "r", job_id="job")
    announce(app)
    store.shift_clock(40)
    announce(app)
    assert re.fullmatch(r"\[running\] Runs for 4\d s on web:7; it usually takes 0 ms\.", said(app, "r"))
    assert app.explain("r").actions == ("runs cancel r",)


@EVERY_STORE
def test_a_run_is_being_stopped(app: Mainspring) -> None:
    start(app.store, "r")
    announce(app)
    assert app.cancel("r")
    assert said(app, "r").startswith("[running] Is being stopped")


@EVERY_STORE
def test_the_node_of_a_run_is_silent(app: Mainspring) -> None:
    announce(app)
    start(app.store, "r")
    app.store.shift_clock(20)
    assert re.fullmatch(
        r"\[running\] Its node web:7 has been silent for 2\d s; another node takes it over in [34]\d s\.",
        said(app, "r"),
    )
    app.store.shift_clock(45)
    assert re.fullmatch(
        r"\[running\] Its node \S+ .+; its lease is over, so another node takes it over\.", said(app, "r")
    )


@EVERY_STORE
def test_a_run_has_succeeded_on_a_later_start(app: Mainspring) -> None:
    run = start(app.store, "r", policy=Policy(retries=1, backoff=(0.0,)))
    assert settle(app.store, fail(app.store, run))
    [again] = claim(app.store)
    assert settle(app.store, succeed(app.store, again))
    assert re.fullmatch(r"\[succeeded\] Succeeded on start 2 at .+ UTC, in 0 ms\.", said(app, "r"))


@EVERY_STORE
def test_a_run_has_succeeded_late(app: Mainspring) -> None:
    run = start(app.store, "r", due_in=-90)
    assert settle(app.store, succeed(app.store, run))
    assert re.fullmatch(r"\[succeeded\] Succeeded at .+ UTC, 1 min 3\d s after its time, in 0 ms\.", said(app, "r"))


@EVERY_STORE
def test_a_run_has_failed_without_retries(app: Mainspring) -> None:
    run = start(app.store, "r")
    assert settle(app.store, fail(app.store, run, "no answer"))
    assert re.fullmatch(
        r"\[failed\] Failed for good at .+ UTC on start 1: ValueError: no answer\. It has no retries\.", said(app, "r")
    )
    assert app.explain("r").actions == ("runs show r", "runs retry r")


@EVERY_STORE
def test_a_run_has_failed_and_all_retries_are_spent(app: Mainspring) -> None:
    store = app.store
    start(store, "r", policy=Policy(retries=1, backoff=(0.0,)))
    store.shift_clock(100)
    assert settle(store, recover(current(store, add_run(store, "r")), store_time(app)))
    for _ in range(2):
        [run] = claim(store)
        assert settle(store, fail(store, run))
    assert re.search(r"on start 3: .+ Its only retry is spent; 1 lost start cost none\.", said(app, "r"))


def store_time(app: Mainspring) -> int:
    return Gatherer(app).now


@EVERY_STORE
def test_a_run_gave_up_at_once(app: Mainspring) -> None:
    run = start(app.store, "r", policy=Policy(retries=3, give_up_on=(ValueError,)))
    assert settle(app.store, fail(app.store, run))
    assert said(app, "r").endswith("It gave up at once: ValueError is in give_up_on.")


@EVERY_STORE
def test_a_run_that_may_run_once_was_lost(app: Mainspring) -> None:
    run = start(app.store, "r", policy=Policy(delivery="at_most_once"))
    app.store.shift_clock(100)
    assert settle(app.store, recover(run, store_time(app)))
    assert re.fullmatch(
        r"\[failed\] Failed at .+: it was lost with its node, and it may run at most once\.", said(app, "r")
    )


@EVERY_STORE
def test_a_run_was_cancelled_before_it_started(app: Mainspring) -> None:
    add_run(app.store, "r")
    assert app.cancel("r")
    assert re.fullmatch(r"\[cancelled\] Cancelled.* before it started.*\.", said(app, "r"))
    assert app.explain("r").actions == ("runs retry r",)


@EVERY_STORE
def test_a_run_cancelled_itself(app: Mainspring) -> None:
    run = start(app.store, "r")
    error = Cancel("no more stock")
    report = Report(run, Result.RAISED, exception=error, started_at=run.run_at, finished_at=run.run_at + 2 * SECOND)
    assert settle(app.store, conclude(report, run.run_at, 0.0))
    assert "Cancelled itself" in said(app, "r")
    assert 'after it had run for 2.0 s: it raised Cancel("no more stock").' in said(app, "r")


@EVERY_STORE
def test_fires_were_missed_because_of_max_instances(app: Mainspring) -> None:
    add_job(app.store, "job", executor="queue")
    assert fire(app.store, due_one(app.store))
    app.store.shift_clock(60)
    fire(app.store, due_one(app.store))
    [missed] = app.find(status="missed")
    assert re.fullmatch(
        r"\[missed\] Due .+ UTC and not run: as many of its runs as max_instances allows had not ended\.",
        said(app, missed.id),
    )
    assert app.explain(missed).actions == ("jobs run job",)


@EVERY_STORE
def test_fires_were_missed_because_they_were_too_late(app: Mainspring) -> None:
    add_job(app.store, "job", executor="queue", due_in=-600, every=3600, misfire_grace_time=30.0)
    fire(app.store, due_one(app.store))
    [missed] = app.find(status="missed")
    told = said(app, missed.id)
    assert re.search(r"it was (10 min|10 min \d+ s) too late, and its misfire_grace_time is shorter\.$", told)
    app.store.shift_clock(3600)
    fire(app.store, due_one(app.store))
    assert re.search(r" 2 fires in a row were missed, from then until .+ UTC\.$", said(app, missed.id))


@EVERY_STORE
@pytest.mark.parametrize(
    ("reason", "words"),
    [("catch_up", "more of its fires were overdue"), ("paused", "its job was paused"), ("rescheduled", "another time")],
)
def test_fires_were_missed_for_a_reason_that_was_recorded(app: Mainspring, reason: str, words: str) -> None:
    add_job(app.store, "job", executor="queue", due_in=-10)
    due = due_one(app.store)
    planned = Plan(due.at + 60 * SECOND, due.at + 60 * SECOND, missed=(MissedFires(reason, 1, due.at, due.at),))
    assert app.store.fire([firing(due, planned, Place("default"), due.at + SECOND)], 60.0) == [()]
    [missed] = app.find(status="missed")
    assert words in said(app, missed.id)


@EVERY_STORE
def test_a_run_was_set_aside(app: Mainspring) -> None:
    run = start(app.store, "r")
    assert settle(app.store, break_(app.store, run))
    assert said(app, "r") == "[broken] Set aside: unreadable. Put that right, then put it back."
    assert app.explain("r").actions == ("broken restore r", "broken discard r")


@EVERY_STORE
def test_nothing_of_a_name_is_there(app: Mainspring) -> None:
    told = app.explain("nightly")
    assert (told.kind, told.state) == ("unknown", "unknown")
    assert told.sentence == (
        "There is no run, job, queue or node called 'nightly' here. A run that has ended is kept for 7 d unless its "
        "task says otherwise, and a job until its last fire."
    )
    assert "did you mean 'default'" in app.explain("defualt").sentence
    with pytest.raises(RunNotFound):
        app.story("nightly")


def noted(asked: list[str], name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    """Note each call of a verb of a store."""

    def call(*args: Any, **options: Any) -> Any:
        asked.append(name)
        return verb(*args, **options)

    return call


@LOCAL
def test_a_run_is_explained_by_few_reads(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        add_run(app.store, f"r{number}")
    app.cancel("r4")
    announce(app)
    app.pause_queue("default")
    store, asked = app.store, list[str]()
    for name in type(store).__abstractmethods__ | JobStore.__abstractmethods__:
        monkeypatch.setattr(store, name, noted(asked, name, getattr(store, name)))
    for run_id in ("r0", "r4"):
        asked.clear()
        app.explain(run_id)
        assert len(asked) <= 6, asked


@LOCAL
def test_a_name_of_several_things_is_told_apart_by_its_kind(app: Mainspring) -> None:
    add_run(app.store, "default")
    assert app.explain("default").kind == "run"
    assert app.explain("queue:default").kind == "queue"
    assert app.explain(app.queues()[0]).kind == "queue"
    with pytest.raises(TypeError, match="name a run, a job, a queue or a node"):
        app.explain(17)


@LOCAL
def test_the_story_of_a_run_tells_each_start_and_each_wait(app: Mainspring) -> None:
    store = app.store
    run = start(store, "r", due_in=0, policy=Policy(retries=3, backoff=(30.0,)))
    assert settle(store, fail(store, run, "no answer"))
    store.shift_clock(40)
    [again] = claim(store, node="node-2")
    assert settle(store, succeed(store, again))
    told = app.story("r")
    starts = [each for each in told if each.kind == "start"]
    assert [(each.number, each.node) for each in starts] == [(1, "node-1"), (2, "node-2")]
    assert "raised ValueError: no answer" in starts[0].text
    assert starts[1].text == "start 2 on node-2: succeeded, 0 ms"
    backed_off, waited = [each for each in told if each.kind == "wait"][-2:]
    assert (backed_off.text, backed_off.seconds) == ("backs off, 30 s", 30.0)
    assert waited.text.startswith("waited in queue 'default', ")
    assert all(each.since.tzinfo is not None and each.since.utcoffset() == UTC.utcoffset(None) for each in told)


@LOCAL
def test_the_story_of_a_run_that_waits_goes_on(app: Mainspring) -> None:
    add_run(app.store, "r", due_in=3600)
    [later] = app.story("r")
    assert (later.kind, later.until) == ("wait", None)
    assert later.text.startswith("set for later")
    assert app.cancel("r")
    assert [each.kind for each in app.story("r")] == ["wait", "end"]


@LOCAL
def test_an_outcome_that_nobody_signed_is_not_believed(app: Mainspring) -> None:
    scene = Gatherer(app).scene()
    run = make_run(app.store, "r", status=Status.SUCCEEDED, unverified="unsigned: its outcome is not signed")
    assert explain_run(run, scene).sentence == (
        "The store says that it is succeeded, but nobody who holds the key has signed that: unsigned: its outcome is "
        "not signed."
    )


# -- runs that come after others ---------------------------------------------------------------------------------


@EVERY_STORE
def test_a_blocked_run_says_how_many_it_waits_for_and_how_it_stands_with_one(app: Mainspring) -> None:
    store = app.store
    fetch = start(store, "fetch", call=Call(TASK, name="fetch"), policy=Policy(retries=1, backoff=(3.0,)))
    done = start(store, "done", queue="other")
    add_run(store, "r", queue="next", after=behind(done, fetch))
    announce(app)
    assert said(app, "r").startswith("[blocked] Waits for 2 of 2: ")
    settle(store, succeed(store, done))
    assert re.fullmatch(r"\[blocked\] Waits for 1 of 2: fetch runs for .+\.", said(app, "r"))
    settle(store, fail(store, fetch))
    assert re.fullmatch(r"\[blocked\] Waits for 1 of 2: fetch is retrying in [23] s\.", said(app, "r"))
    fact = app.explain("r").facts[-1]
    assert (fact.name, fact.value, fact.kind, fact.id) == ("after", "fetch", "run", "fetch")


@LOCAL
def test_a_blocked_run_says_that_the_one_before_waits_itself(app: Mainspring) -> None:
    first = add_run(app.store, "a", call=Call(TASK, name="a"))
    second = add_after(app.store, first, id="b", call=Call(TASK, name="b"))
    add_after(app.store, second, id="c")
    assert said(app, "b") == "[blocked] Waits for 1 run: a waits in queue 'default'."
    assert said(app, "c") == "[blocked] Waits for 1 run: b is blocked, too."


@EVERY_STORE
def test_a_refused_run_says_which_run_failed_and_what_to_send_back(app: Mainspring) -> None:
    first = start(app.store, "a", call=Call(TASK, name="a"))
    add_after(app.store, first, id="b")
    refused = app.store.settle([fail(app.store, first, "torn")]).refused
    assert said(app, "b") == "[waiting] Will not run: run 'a', which it comes after, has not ended as it should."
    app.runs.cancel_refused(refused)
    assert re.fullmatch(
        r"\[cancelled\] Cancelled, .+: it came after a, which failed: ValueError: torn\.", said(app, "b")
    )
    assert app.explain("b").actions == ("runs retry a",)


@LOCAL
def test_a_signal_waits_for_people_and_its_queue_for_nobody(app: Mainspring) -> None:
    add_run(app.store, "s", queue="!signal")
    assert said(app, "s") == "[waiting] Waits for somebody to give the signal that it stands for."
    assert app.explain("queue:!signal").state == "held"
    assert app.explain().state == "idle"


@LOCAL
def test_the_story_of_a_run_tells_how_long_it_waited_for_others(app: Mainspring) -> None:
    first = start(app.store, "a")
    run = add_after(app.store, first, id="b", due_in=0)
    assert [each.text.partition(",")[0] for each in app.story("b")] == ["waits for 1 run"]
    app.store.shift_clock(60)
    settle(app.store, succeed(app.store, first))
    (released,) = claim(app.store, run.queue)
    settle(app.store, succeed(app.store, released))
    waited, *_, started = app.story("b")
    assert (waited.kind, started.kind) == ("wait", "start")
    assert waited.text.startswith("waited for 1 run, 1 min")
