"""The checker of the chaos run finds what it is there to find: each broken promise, made up here, is seen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Run, Status
from mainspring.jobstores.base import QueueInfo
from tests.chaos.check import Checker, Finding, History, at_rest, tampered
from tests.chaos.ledger import Record

LEASE = 5.0
RUN = Run(id="run1", call=Call("f"), status=Status.SUCCEEDED, attempt=1, token="t1")
GOOD = "B 0 w - - -|P 1 w run1|E 2 w run1|C 3 w run1 1 t1|S 4 w run1 1 t1|X 5 w run1 1 t1|A 6 w run1 1 t1 succeeded"
PIDS = {"w": 100, "v": 200}
LATER = "|C 20 v run1 2 t2|S 21 v run1 2 t2|X 22 v run1 2 t2|A 23 v run1 2 t2 succeeded"


def records(text: str) -> list[Record]:
    """Read `kind second who id attempt token extra`, separated by bars; the last three may be left out."""
    found = []
    for part in text.split("|"):
        kind, second, who, name, attempt, token, extra = (part.split() + ["-"] * 7)[:7]
        number = 0 if attempt == "-" else int(attempt)
        detail = "0" if extra == "-" else extra
        found.append(Record(kind, int(float(second) * 1e9), PIDS[who], name, number, token, detail))
    return found


def check(text: str, *runs: Run, jobs: dict[str, tuple[float, bool]] | None = None) -> dict[str, Finding]:
    findings = Checker(records(text), {run.id: run for run in runs}, LEASE).check(jobs or {})
    return {finding.name: finding for finding in findings if finding.wrong}


def fired(at: int, **changes: object) -> Run:
    run = replace(RUN, id=f"job@1@{at}", job_id="job", fire_time=at * SECOND, attempt=0)
    return replace(run, **changes)


def test_a_history_without_fault_passes() -> None:
    assert check(GOOD, RUN) == {}


@pytest.mark.parametrize(
    ("name", "text", "run"),
    [
        ("I1  acknowledged and lost", "E 1 w run2", RUN),
        ("I1  acknowledged and lost", "E 1 w run1", replace(RUN, status=Status.RUNNING)),
        ("I2  executed without being stored", "S 1 w run2 1 t1", RUN),
        ("I3  accepted twice", f"{GOOD}|A 7 w run1 1 t1 succeeded", RUN),
        ("I3  accepted twice", GOOD, replace(RUN, status=Status.FAILED)),
        ("I4  ended by a stale word, or revived", GOOD, replace(RUN, token="t2")),
        ("I4  ended by a stale word, or revived", f"{GOOD}|C 7 v run1 2 t2", RUN),
        ("I6  effects without a reason", f"{GOOD}|X 6 w run1 1 t1", RUN),
        ("I6  effects without a reason", "S 4 w run1 1 t1|A 6 w run1 1 t1 succeeded", RUN),
        (
            "I6  effects repeated without a fault",
            f"C 3 w run1 1 t1|S 4 w run1 1 t1|X 5 w run1 1 t1{LATER}",
            replace(RUN, attempt=2, token="t2"),
        ),
        ("I7  starts that were not charged", f"{GOOD}|S 7 v run1 2 t2", RUN),
        (
            "I7  at_most_once started twice",
            f"{GOOD}|S 7 v run1 2 t2",
            replace(RUN, attempt=2, policy=Policy(delivery="at_most_once")),
        ),
        ("I8  claims while another one held", f"C 3 w run1 1 t1{LATER}", replace(RUN, attempt=2, token="t2")),
        (
            "I8  claims while another one held",
            f"C 3 w run1 1 t1|R 9 v run1 1 t1 pending{LATER}",
            replace(RUN, attempt=2, token="t2"),
        ),
        ("I10 started early", "S 4 w run1 1 t1 4000001|X 5 w run1 1 t1", RUN),
    ],
)
def test_a_broken_promise_is_seen(name: str, text: str, run: Run) -> None:
    assert name in check(text, run)


def test_what_a_kill_explains_is_no_broken_promise() -> None:
    text = (
        f"B 0 w worker|B 0 v worker|C 3 w run1 1 t1|S 4 w run1 1 t1|X 5 w run1 1 t1|K 6 w kill|R 12 v run1 1 t1{LATER}"
    )

    assert check(text, replace(RUN, attempt=2, token="t2")) == {}


@pytest.mark.parametrize(("crash", "excused"), [("|K 5.5 v restart - - 2", True), ("|K 60 v restart - - 2", False)])
def test_a_start_need_not_be_charged_if_a_crash_of_the_store_has_undone_its_claim(crash: str, excused: bool) -> None:
    first = "C 3 w run1 1 t0|S 4 w run1 1 t0|X 5 w run1 1 t0"
    second = "|C 8 v run1 1 t1|S 9 v run1 1 t1|X 10 v run1 1 t1|A 11 v run1 1 t1 succeeded"

    wrong = check(f"{first}{crash}{second}", RUN)

    assert ("I6  effects without a reason" not in wrong) is excused
    assert ("I7  starts that were not charged" not in wrong) is excused


@pytest.mark.parametrize(("at", "excused"), [(20.5, True), (22, False)])
def test_a_run_may_be_given_up_by_a_process_that_crashes_before_it_writes_that_down(at: float, excused: bool) -> None:
    text = f"B 0 w worker|B 0 v worker|C 3 w run1 1 t1|S 4 w run1 1 t1{LATER}|K {at} w crash"

    wrong = check(text, replace(RUN, attempt=2, token="t2"))

    assert ("I8  claims while another one held" not in wrong) is excused


def test_a_run_of_the_dead_that_is_claimable_too_late_is_seen() -> None:
    text = f"B 0 w worker|B 0 v worker|C 3 w run1 1 t1|K 6 w kill|R 16.1 v run1 1 t1{LATER}"

    assert list(check(text, replace(RUN, attempt=2, token="t2"))) == ["I11 runs of the dead claimable late"]


def test_the_time_for_recovery_begins_when_the_store_is_back() -> None:
    text = f"B 0 w worker|B 0 v worker|C 3 w run1 1 t1|K 6 w kill|K 9 v restart - - 2|R 16.1 v run1 1 t1{LATER}"

    assert check(text, replace(RUN, attempt=2, token="t2")) == {}


@pytest.mark.parametrize(("end", "length", "excused"), [(13, 9, True), (13, 11, True), (60, 20, False)])
def test_a_run_may_be_taken_only_from_a_program_that_was_cut_off_meanwhile(
    end: float, length: float, excused: bool
) -> None:
    text = f"C 3 w run1 1 t1|S 4 w run1 1 t1|X 5 w run1 1 t1|R 12 v run1 1 t1|K {end} w cut 0 - {length}{LATER}"
    name = "I8  claims while another one held"

    assert (name not in check(text, replace(RUN, attempt=2, token="t2"))) is excused


@pytest.mark.parametrize(
    "runs",
    [
        [fired(1), fired(3)],  # the second is missing
        [fired(1), replace(fired(1), id="job@2@1"), fired(2)],
        [fired(1), fired(2, status=Status.FAILED)],
    ],
)
def test_a_fire_that_is_missing_doubled_or_not_executed_is_seen(runs: list[Run]) -> None:
    assert "I10 fired twice or not, every 1 s, each" in check(GOOD, RUN, *runs, jobs={"job": (1.0, False)})


def test_coalesced_fires_stand_for_every_instant() -> None:
    name, jobs = "I10 fired twice or not, every 1 s, coalesced", {"job": (1.0, True)}

    assert name not in check(GOOD, RUN, fired(1), fired(4, count=3), jobs=jobs)
    assert name in check(GOOD, RUN, fired(1), fired(4, count=2), jobs=jobs)


def test_what_is_left_or_miscounted_at_rest_is_seen() -> None:
    runs, right = {"run1": RUN}, {"succeeded": 1}

    assert at_rest(runs, [], right, []).wrong == []
    assert at_rest(runs, ["run1"], right, []).wrong
    assert at_rest(runs, [], {"succeeded": 2}, []).wrong
    assert at_rest(runs, [], right, [QueueInfo(name="default", running=1)]).wrong


def test_an_altered_run_that_is_executed_dropped_changed_or_harms_its_neighbour_is_seen() -> None:
    history, executed = History([]), History(records("S 1 w bad 1 t1"))
    broken = replace(RUN, id="bad", status=Status.BROKEN, reason="bad_signature")
    runs, spoiled = {"bad": broken, "run1": RUN}, {"bad": b"?"}

    assert tampered(history, runs, spoiled, {"bad": b"?"}, ["run1"]).wrong == []
    assert tampered(executed, runs, spoiled, {"bad": b"?"}, []).wrong
    assert tampered(history, {}, spoiled, {"bad": b"?"}, []).wrong
    assert tampered(history, runs, spoiled, {"bad": b"!"}, []).wrong
    assert tampered(history, runs, spoiled, {"bad": b"?"}, ["run2"]).wrong
