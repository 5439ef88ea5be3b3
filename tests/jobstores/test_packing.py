"""Runs and jobs as rows and back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.codec import Codec, EncodeError, FrameError, Keyring
from mainspring.core.job import Job
from mainspring.core.run import ON, After, Call, Error, Report, Result, Run, Status
from mainspring.core.transitions import conclude
from mainspring.jobstores.records.packing import RecordPacker
from mainspring.jobstores.sqlalchemy.steps.runs import SUCCEEDED
from mainspring.triggers.interval import IntervalTrigger

KEY = "a key of the tests, long enough"
CALL = Call("mainspring.testing.conformance.helpers:work", (1,), {"two": 2}, "work")


@pytest.fixture(params=["signed", "unsigned"])
def packer(request: pytest.FixtureRequest) -> RecordPacker:
    return RecordPacker(Codec(Keyring([KEY])) if request.param == "signed" else Codec())


def make_run(**fields: Any) -> Run:
    return Run(**{"id": "run", "call": CALL, "created_at": 7, "run_at": 8, **fields})


def test_a_direct_run_is_restored_however_often_it_was_written(packer: RecordPacker) -> None:
    run = packer.run(packer.run_row(make_run()))
    for status in (Status.RUNNING, Status.PENDING, Status.SUCCEEDED):
        run = packer.run(packer.run_row(replace(run, status=status)))
    assert (run.func, run.args, dict(run.kwargs), run.name) == (CALL.func, (1,), {"two": 2}, "work")
    assert run.status is Status.SUCCEEDED


def test_a_run_of_a_job_that_no_fire_made_is_restored_however_often_it_was_written(packer: RecordPacker) -> None:
    run = packer.run(packer.run_row(make_run(job_id="job")))
    assert packer.run(packer.run_row(run)).args == (1,)


def test_a_signed_call_is_not_taken_for_another_runs(packer: RecordPacker) -> None:
    row = packer.run_row(make_run())
    if packer.codec.signed:
        with pytest.raises(FrameError, match="signature"):
            packer.run(replace(row, id="other"))
    else:
        assert packer.run(replace(row, id="other")).args == (1,)


def test_the_names_that_people_search_for_are_texts_that_any_database_keeps(packer: RecordPacker) -> None:
    row = packer.run_row(make_run())
    assert (row.task, row.label) == ("mainspring.testing.conformance.helpers:work", "work")
    odd = packer.run_row(make_run(call=replace(CALL, name="a\0b\ud800" + "ä" * 300)))
    assert odd.label == "ab?" + "ä" * 251


def test_a_success_changes_only_what_a_sql_store_writes_of_it(packer: RecordPacker) -> None:
    pending = packer.run_row(make_run(queue="mail", priority=3, unique="key", start_by=9, retried=1))
    claimed = {"status": "running", "token": "t", "node": "n", "lease_until": 99, "attempt": 1}
    held = packer.run(replace(pending, **claimed))
    placed = replace(held, executor="loop")  # where it was executed
    report = Report(placed, Result.RETURNED, value=7, started_at=10, finished_at=11)
    [before, after] = [packer.run_row(run) for run in (held, conclude(report, 12, 0.0).run)]
    changed = {name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    # `expires_at` follows from the end; a run with a unique key is not settled that way.
    assert changed == {name if isinstance(name, str) else name[0] for name in SUCCEEDED} - {"expires_at"} | {"unique"}


def test_a_run_with_nothing_to_tell_has_no_state(packer: RecordPacker) -> None:
    assert packer.run_row(make_run()).state == b""


@pytest.mark.parametrize(
    "result",
    [
        None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**200, 1.0, -0.5, float("inf"), "", "text", "ä日本",
        "\ud800", "x" * 5000, b"bytes", (1, 2), [1, [2]], {"a": {"b": None}}, {1, 2},
    ],
)  # fmt: skip
def test_a_result_comes_back_as_it_was(packer: RecordPacker, result: Any) -> None:
    back = packer.run(packer.run_row(make_run(result=result))).result
    assert back == result
    assert type(back) is type(result)


def test_a_result_is_signed_if_there_is_a_key() -> None:
    packer = RecordPacker(Codec(Keyring([KEY])))
    row = packer.run_row(make_run(result=42))
    with pytest.raises(FrameError, match="signature"):
        packer.run(replace(row, id="other", call=packer.run_row(make_run(id="other")).call))


def test_all_that_only_the_core_looks_at_comes_back(packer: RecordPacker) -> None:
    error = Error("ValueError", "no", "Traceback ...", 5, 1)
    run = make_run(
        executor="pool", fire_time=1, start_by=2, started_at=3, failures=4, crashes=5, interruptions=6,
        reason="\ud800é", count=7, last=8, errors=(error,), progress=0.5, data={"a": 1}, log=("line",),
        key="k", retried=11, after=(After("x", ON["end"]),), gate="key:a", gate_spec="1/0/1",
    )  # fmt: skip
    back = packer.run(packer.run_row(run))
    assert replace(back, call=CALL, reason=run.reason) == run
    assert back.reason == "\\ud800é"


@pytest.mark.parametrize("damage", [b"\xc1", b"\x91", b"\x9e\x01", b"not a state"])
def test_a_damaged_state_is_a_frame_error(packer: RecordPacker, damage: bytes) -> None:
    with pytest.raises(FrameError):
        packer.run(replace(packer.run_row(make_run()), state=damage))


def test_a_broken_run_shows_its_reason_and_keeps_its_state(packer: RecordPacker) -> None:
    row = replace(packer.run_row(make_run(result="x")), call=b"damaged")
    shown = packer.shown(packer.broken_row(row, "bad_data: damaged", 9))
    assert (shown.status, shown.reason) == (Status.BROKEN, "bad_data: damaged")
    assert row.state in packer.broken_row(row, "", 9).state


def test_a_broken_run_keeps_its_unique_key_and_how_often_it_was_sent_back(packer: RecordPacker) -> None:
    row = packer.run_row(make_run(unique="k", retried=2))
    broken = packer.broken_row(row, "unknown_key: not here", 9)
    assert broken.unique is None
    again = packer.run(packer.broken_row(broken, "unknown_key: not here", 10))
    assert (again.key, again.retried) == ("k", 2)
    damaged = packer.broken_row(replace(row, state=b"not a state"), "bad_data: damaged", 9)
    assert (packer.run(damaged).key, packer.run(damaged).retried) == ("k", 0)


def test_arguments_that_a_function_may_change_are_not_shared(packer: RecordPacker) -> None:
    call = replace(CALL, args=([],), kwargs={"more": {}})
    job = packer.job_row(Job("job", call, IntervalTrigger(seconds=1, timezone="UTC"), at=1))
    row = packer.run_row(make_run(call=call))
    calls: list[Callable[[], Call]] = [lambda: packer.job(job).call, lambda: packer.run(row).call]
    for restored in calls:
        first = restored()
        first.args[0].append("changed")
        first.kwargs["more"]["changed"] = True
        assert restored().args == ([],)
        assert restored().kwargs == {"more": {}}


def take(user: Any, /, items: Any, *rest: Any, **more: Any) -> None:
    """Take arguments of every kind."""


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        ((object(), 2), {}, "user"),
        ((1, {"deep": [object()]}), {}, "items.deep[0]"),
        ((1, 2, 3, object()), {}, "args[3]"),
        ((1,), {"items": [object()]}, "items[0]"),
        ((1, 2), {"two words": object()}, "kwargs['two words']"),
    ],
)
def test_an_argument_that_cannot_be_stored_is_called_as_its_parameter_is(
    packer: RecordPacker, args: tuple[Any, ...], kwargs: dict[str, Any], path: str
) -> None:
    call = Call(f"{__name__}:take", args, kwargs, "take")
    for pack in (
        lambda: packer.run_row(make_run(call=call)),
        lambda: packer.job_row(Job("job", call, IntervalTrigger(hours=1))),
    ):
        with pytest.raises(EncodeError) as caught:
            pack()
        assert caught.value.path == path
        assert str(caught.value).startswith(f"{path} in the call of {__name__}:take is a")


def test_an_argument_of_a_function_that_is_not_at_hand_is_counted(packer: RecordPacker) -> None:
    with pytest.raises(EncodeError) as caught:
        packer.run_row(make_run(call=Call("not_imported:take", (1, object()))))
    assert caught.value.path == "args[1]"


def test_a_call_too_large_to_be_stored_is_named(packer: RecordPacker) -> None:
    noise = random.Random(0).randbytes(2_000_000)  # nothing that could be compressed
    with pytest.raises(EncodeError, match=f"in the call of {__name__}:take takes .* bytes"):
        packer.run_row(make_run(call=Call(f"{__name__}:take", (noise, 2))))


def test_a_run_keeps_what_it_comes_after_and_what_the_store_counts(packer: RecordPacker) -> None:
    after = (After("first", ON["end"]), After("second"))
    run = make_run(after=after, waits=2, followed=3, refused="first", gate="key", gate_spec="2/0/1")
    row = packer.run_row(run)
    assert row.after == after
    back = packer.run(replace(row, after=()))  # a back end keeps these only inside the state
    assert (back.after, back.waits, back.followed, back.refused) == (after, 2, 3, "first")
    assert (back.gate, back.gate_spec) == ("key", "2/0/1")


def test_a_broken_run_still_knows_what_it_comes_after(packer: RecordPacker) -> None:
    row = packer.broken_row(packer.run_row(make_run(after=(After("first"),))), "why", 9)
    assert packer.run(replace(row, after=())).after == (After("first"),)


def test_a_run_that_does_not_count_for_its_job_has_no_owner(packer: RecordPacker) -> None:
    row = packer.run_row(make_run(id="job@1@5", job_id="job", counted=False))
    assert (row.owner, packer.run(row).counted) == (None, False)
    row = packer.run_row(make_run(id="job@1@5", job_id="job"))
    assert (row.owner, packer.run(row).counted) == ("job@1", True)
