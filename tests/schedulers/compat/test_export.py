"""Jobs written to a file and read by another scheduler: our own format, no pickles."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.schedulers.compat.functions import Counter, add
from tests.schedulers.compat.kit import Package

FAR = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("trigger", "options"),
    [
        ("date", {"run_date": "2100-01-01"}),
        ("interval", {"hours": 1, "jitter": 5, "end_date": "2101-01-01"}),
        ("cron", {"day": "last", "hour": "*/3", "timezone": "Europe/Berlin"}),
        ("calendarinterval", {"months": 1, "hour": 5, "start_date": "2099-01-31"}),
    ],
)
def test_a_job_comes_back_as_it_was(ours: Package, tmp_path: Path, trigger: str, options: dict[str, Any]) -> None:
    first, second = ours.started(), ours.started()
    job = first.add_job(
        add, trigger, [1], {"b": 2}, "sum", "a sum", 60, False, 3, retries=2, timeout=9, backoff=[1, 2], **options
    )
    first.export_jobs(tmp_path / "jobs.json")
    second.import_jobs(str(tmp_path / "jobs.json"))
    (twin,) = second.get_jobs()
    assert (twin.id, twin.name, twin.func, twin.args, twin.kwargs) == ("sum", "a sum", add, (1,), {"b": 2})
    assert (twin.misfire_grace_time, twin.coalesce, twin.max_instances) == (60, False, 3)
    assert (twin.trigger, twin.next_run_time, twin.policy) == (job.trigger, job.next_run_time, job.policy)


def test_values_keep_their_types(ours: Package) -> None:
    values: list[Any] = [None, True, 1, 1.5, "t", b"\x00b", (1, 2), {1, 2}, Decimal("1.10"), UUID(int=5), FAR]
    values += [date(2030, 1, 2), timedelta(days=1, microseconds=3), {"nested": [(1,), {"deep": FAR}]}, [1, [2]]]
    first, second, out = ours.started(), ours.started(), io.StringIO()
    first.add_job(print, "interval", [values], hours=1)
    first.export_jobs(out)
    second.import_jobs(io.StringIO(out.getvalue()))
    (restored,) = second.get_jobs()[0].args
    assert restored == values
    assert [type(value) for value in restored] == [type(value) for value in values]


def test_what_json_can_carry_is_readable_in_the_file_and_the_rest_is_named_by_its_place(ours: Package) -> None:
    scheduler, out = ours.started(), io.StringIO()
    scheduler.add_job(print, "interval", ["text", {"deep": [1]}, (1,)], id="it", hours=1, retries=2, backoff=[1, 2])
    scheduler.export_jobs(out)
    (data,) = json.loads(out.getvalue())["jobs"]
    assert data["args"][:2] == ["text", {"deep": [1]}]
    assert list(data["args"][2]) == ["$frame"]
    assert data["policy"] == {"retries": 2, "backoff": [1, 2]}
    scheduler.modify_job("it", args=[{"deep": [object()]}])
    with pytest.raises(ValueError, match=r"job 'it' cannot be exported: args\[0\]\.deep\[0\] is an object"):
        scheduler.export_jobs(out)


def test_a_paused_job_stays_paused(ours: Package) -> None:
    first, second, out = ours.started(), ours.started(), io.StringIO()
    first.add_job(add, "interval", [1], id="sum", hours=1, next_run_time=None)
    first.export_jobs(out)
    second.import_jobs(io.StringIO(out.getvalue()))
    assert second.get_job("sum").next_run_time is None


def test_pending_jobs_go_from_and_to_schedulers_that_have_not_started(ours: Package) -> None:
    first, second, out = ours.scheduler(), ours.scheduler(), io.StringIO()
    first.add_job(add, "interval", [1], id="sum", hours=1)
    first.export_jobs(out)
    second.import_jobs(io.StringIO(out.getvalue()))
    second.start(paused=True)
    assert second.get_job("sum").next_run_time is not None


def test_one_store_is_exported_and_another_imported_into(ours: Package) -> None:
    scheduler, out = ours.started(), io.StringIO()
    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(add, "interval", [1], id="a", hours=1)
    scheduler.add_job(add, "interval", [1], id="b", jobstore="other", hours=1)
    scheduler.export_jobs(out, "other")
    scheduler.import_jobs(io.StringIO(out.getvalue()), "default")
    assert sorted(job.id for job in scheduler.get_jobs("default")) == ["a", "b"]


def test_an_imported_job_replaces_the_one_of_its_id(ours: Package) -> None:
    first, second, out = ours.started(), ours.started(), io.StringIO()
    first.add_job(add, "interval", [1], id="sum", hours=1)
    first.export_jobs(out)
    second.add_job(add, "interval", [9], id="sum", hours=9)
    second.import_jobs(io.StringIO(out.getvalue()))
    assert [job.args for job in second.get_jobs()] == [(1,)]


@pytest.mark.parametrize("call", ["lambda", "nested", "object", "method"])
def test_what_cannot_be_written_is_named_and_nothing_is_written(ours: Package, tmp_path: Path, call: str) -> None:
    scheduler, path = ours.started(), tmp_path / "jobs.json"

    def nested() -> None: ...

    scheduler.add_job(add, "interval", [1], id="fine", hours=1)
    functions = {"lambda": lambda: 1, "nested": nested, "object": add, "method": Counter().up}
    scheduler.add_job(functions[call], "interval", [object()] if call == "object" else [], id="bad", hours=1)
    with pytest.raises(ValueError, match="job 'bad'"):
        scheduler.export_jobs(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not a file of exported jobs"),
        ("[]", "not a file of exported jobs"),
        ('{"version": 1, "scheduler_version": "3.11.3", "jobs": []}', "exported by APScheduler and holds pickles"),
        ('{"mainspring": 1, "jobs": [{"id": "x"}]}', "exported job 'x' cannot be read"),
        ('{"mainspring": 2, "jobs": []}', "newer mainspring"),
    ],
)
def test_a_file_that_cannot_be_read_changes_nothing(ours: Package, text: str, complaint: str) -> None:
    scheduler = ours.started()
    with pytest.raises(ValueError, match=complaint):
        scheduler.import_jobs(io.StringIO(text))
    assert scheduler.get_jobs() == []


def test_one_damaged_job_keeps_the_others_out(ours: Package) -> None:
    scheduler, out = ours.started(), io.StringIO()
    for name in ("a", "b"):
        scheduler.add_job(add, "interval", [1], id=name, hours=1)
    scheduler.export_jobs(out)
    document = json.loads(out.getvalue())
    document["jobs"][1]["trigger"] = {"type": "intervall"}
    other = ours.started()
    with pytest.raises(ValueError, match=r"exported job 'b' cannot be read.*intervall"):
        other.import_jobs(io.StringIO(json.dumps(document)))
    assert other.get_jobs() == []


def test_an_import_into_an_unknown_store_changes_nothing(ours: Package) -> None:
    scheduler, out = ours.started(), io.StringIO()
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    scheduler.export_jobs(out)
    with pytest.raises(KeyError, match="othr"):
        ours.started().import_jobs(io.StringIO(out.getvalue()), "othr")


def test_a_file_that_aps_wrote_is_refused_unopened(ours: Package) -> None:
    theirs, out = Package("apscheduler"), io.StringIO()
    scheduler = theirs.started()
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    scheduler.export_jobs(out)
    theirs.close()
    with pytest.raises(ValueError, match="pickles, which are not opened"):
        ours.started().import_jobs(io.StringIO(out.getvalue()))
