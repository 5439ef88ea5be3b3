"""Who did what, when and why: kept by every store, read as the audit and in explanations."""

from __future__ import annotations

import re
import threading
from datetime import timedelta

import pytest

from mainspring import Mainspring
from mainspring.testing.conformance.helpers import add_job, add_run, fail, settle, start
from tests.app.insight.kit import EVERY_STORE, announce
from tests.app.kit import LOCAL


@EVERY_STORE
def test_a_pause_says_who_when_and_why(app: Mainspring) -> None:
    add_run(app.store, "r")
    add_job(app.store, "job", due_in=3600, executor="queue")
    announce(app)
    with app.acting("ann", "the provider is down"):
        app.pause_queue("default")
        app.pause_job("job")
    for name in ("r", "queue:default", "job"):
        sentence = app.explain(name).sentence
        assert "aused by ann, " in sentence
        assert ': "the provider is down".' in sentence


@EVERY_STORE
def test_a_cancelled_run_says_who_cancelled_it(app: Mainspring) -> None:
    for run_id in ("r", "s", "t"):
        add_run(app.store, run_id)
    with app.acting(by="ann"):
        app.cancel("r")
    with app.acting(by="bob", why="test data"):
        assert app.purge("default") == 2
    announce(app)
    running = start(app.store, "u", queue="other")
    with app.acting(by="eve", why="too slow"):
        app.cancel(running.id)
    assert "Cancelled by ann, " in app.explain("r").sentence
    assert app.explain("r").sentence.endswith(", before it started.")
    assert "Cancelled by bob, " in app.explain("s").sentence
    assert app.explain("s").sentence.endswith(': "test data"; before it started.')
    stopping = r"Is being stopped: eve asked for it \d+ s ago \('too slow'\); it runs on"
    assert re.match(stopping, app.explain("u").sentence)


@EVERY_STORE
def test_a_run_that_was_sent_back_says_by_whom(app: Mainspring) -> None:
    assert settle(app.store, fail(app.store, start(app.store, "r")))
    with app.acting("ann"):
        app.retry("r")
    [fact] = [fact for fact in app.explain("r").facts if fact.name == "sent back"]
    assert fact.value.startswith("1 time by ann, ")


@EVERY_STORE
def test_a_run_that_somebody_put_off_says_by_whom(app: Mainspring) -> None:
    add_run(app.store, "r")
    with app.acting("ann", "after lunch"):
        app.runs.postpone("r", timedelta(hours=1))
    assert " by ann, " in app.explain("r").sentence
    assert app.explain("r").sentence.endswith(': "after lunch".')
    assert settle(app.store, fail(app.store, start(app.store, "s")))
    with app.acting("bob"):
        app.retry("s", at=timedelta(hours=1))
    assert ": it was sent back by bob, " in app.explain("s").sentence


@EVERY_STORE
def test_the_audit_lists_what_people_did_newest_first(app: Mainspring) -> None:
    add_job(app.store, "job", due_in=3600, executor="queue")
    with app.acting("ann", "quiet night"):
        app.pause_job("job")
        with app.acting(why="it is morning"):
            app.resume_job("job")
    app.modify_job("job", name="other")
    app.run_now("job").cancel()
    app.remove_job("job")
    told = app.audit()
    assert [entry.verb for entry in told] == [
        "remove_job", "cancel", "run_now", "modify_job", "resume_job", "pause_job",
    ]  # fmt: skip
    assert [(entry.by, entry.why) for entry in told[-2:]] == [("ann", "it is morning"), ("ann", "quiet night")]
    assert "@" in told[0].by  # the account and the machine, where nobody said who
    assert told[3].details == {"fields": ["name"]}
    assert [entry.verb for entry in app.audit(kind="run", target=told[1].target)] == ["cancel"]
    assert app.audit(limit=2) + app.audit(after=app.audit(limit=2)[-1]) == told
    assert app.audit(since=timedelta(hours=1)) == told
    with pytest.raises(TypeError, match="give both kind= and target="):
        app.audit(kind="run")


@LOCAL
def test_a_name_holds_for_its_thread_only(app: Mainspring) -> None:
    with app.acting("ann"):
        other = threading.Thread(target=app.pause_queue, args=("mail",))
        other.start()
        other.join()
    [entry] = app.audit()
    assert entry.by != "ann"


@LOCAL
def test_what_cannot_be_written_down_is_done_nevertheless(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(app.store, "acts", refuse)
    app.pause_queue("mail")
    assert [queue.name for queue in app.queues() if queue.paused] == ["mail"]
    assert "pause_queue of queue 'mail'" in caplog.text


@LOCAL
def test_texts_are_cut_and_kept_on_one_line(app: Mainspring) -> None:
    with app.acting("ann\n\x00" * 300, "a\udcffb\n" * 300):
        app.pause_queue("mail")
    [entry] = app.audit()
    assert len(entry.by) == len(entry.why) == 500
    assert "\n" not in entry.by + entry.why


@EVERY_STORE
def test_a_search_finds_the_runs_that_a_person_acted_on(app: Mainspring) -> None:
    for number in range(5):
        add_run(app.store, f"r{number}")
    with app.acting("ann"):
        for number in (0, 1, 3):
            app.cancel(f"r{number}")
    with app.acting("bob"):
        app.prioritize("r2", 5)
        app.delete("r1")
    assert {run.id for run in app.search("by:ann").runs} == {"r0", "r3"}
    assert {run.id for run in app.search("-by:ann").runs} == {"r2", "r4"}
    assert {run.id for run in app.search("by:ann,bob status:pending").runs} == {"r2"}
    assert app.count_up_to("by:*") == (3, True)


@LOCAL
def test_a_search_by_person_goes_on_where_a_page_ended(app: Mainspring) -> None:
    for number in range(5):
        add_run(app.store, f"r{number}")
    with app.acting("ann"):
        for number in range(5):
            app.cancel(f"r{number}")
    page = app.search("by:ann", limit=2)
    found = [run.id for run in page.runs]
    while page.next is not None:
        page = app.search("by:ann", limit=2, after=page.next)
        found += [run.id for run in page.runs]
    assert found == [run.id for run in app.find()]
    assert len(found) == 5


@LOCAL
def test_a_search_by_person_reads_all_acts_that_are_kept(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.app.runs.ACTS_PAGE", 2)
    for number in range(6):
        add_run(app.store, f"r{number}")
        with app.acting("ann" if number == 0 else "bob"):
            app.cancel(f"r{number}")
    assert [run.id for run in app.search("by:ann").runs] == ["r0"]
    assert len(app.search("by:bob").runs) == 5
