"""`mainspring import`: what APScheduler 3 has stored, taken over as it is; what could run code, left alone."""

from __future__ import annotations

import os
import pickle
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import pytz
import redis
from apscheduler.jobstores.redis import RedisJobStore as TheirRedisStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore as TheirTable
from apscheduler.schedulers.background import BackgroundScheduler as TheirScheduler
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from click.testing import CliRunner
from sqlalchemy import create_engine, text

from mainspring.app import Mainspring
from mainspring.cli import main
from mainspring.cli.importing.pickles import read_job
from mainspring.codec import Codec, Keyring
from mainspring.core.job import Job
from mainspring.events import EVENT_JOB_EXECUTED
from mainspring.jobstores.opening import open_store
from mainspring.schedulers.background import BackgroundScheduler
from tests.servers import Redis

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2031, 1, 5, 10, 30, 0, 250_000, tzinfo=BERLIN)
END = datetime(2032, 12, 31, tzinfo=UTC)
TRIGGERS: dict[str, Callable[[], Any]] = {
    "date": lambda: DateTrigger(datetime(2031, 6, 1, 12, 0, 0, 5), timezone="Asia/Tokyo"),
    "date, fixed offset": lambda: DateTrigger(datetime(2031, 6, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    "interval": lambda: IntervalTrigger(minutes=90, start_date=START, end_date=END, timezone=BERLIN),
    "interval, fractions": lambda: IntervalTrigger(days=1, seconds=0.123457, start_date=START, timezone="UTC"),
    "interval, pytz": lambda: IntervalTrigger(hours=7, start_date=START, timezone=pytz.timezone("America/New_York")),
    "cron": lambda: CronTrigger(hour="8-18/2", minute="*/15", day_of_week="mon-fri", timezone=BERLIN),
    "cron, every part": lambda: CronTrigger(
        year="2031-2033", month="jan,mar-oct", day="1st mon,last fri,last,15", hour="5/6,23", second=30, timezone="UTC"
    ),
    "cron, weeks": lambda: CronTrigger(week="*/2", day_of_week="sun", start_date=START, end_date=END, timezone=BERLIN),
    "cron, crontab": lambda: CronTrigger.from_crontab("30 9 * * 1-3", timezone="UTC"),
    "calendar": lambda: CalendarIntervalTrigger(
        months=1, days=2, hour=6, minute=7, second=8, start_date=date(2031, 1, 31), timezone=BERLIN
    ),
    "and": lambda: AndTrigger(
        [CronTrigger(hour="3,5", timezone=BERLIN), CronTrigger(day_of_week="tue", hour="*", timezone=BERLIN)]
    ),
    "or": lambda: OrTrigger([CronTrigger(hour=3, timezone=BERLIN), OrTrigger([CronTrigger(hour=9, timezone="UTC")])]),
}
ARGUMENTS = (1, "text", 2.5, None, (3, 4), {5}, Decimal("1.10"), UUID(int=7), START, date(2031, 1, 1), b"bytes")


def work(*args: Any, **kwargs: Any) -> None:
    """Do nothing: what the jobs name."""


class Evil:
    """A pickle that leaves a file behind when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@dataclass
class Money:
    """A type of the user's own."""

    cents: int


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["import", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def first_line(output: str) -> str:
    return output.partition("\n")[0]


def write(store: Any, fill: Callable[[TheirScheduler], None]) -> dict[str, Any]:
    """Have APScheduler store jobs; return them as it sees them."""
    theirs = TheirScheduler(jobstores={"default": store}, timezone="UTC")
    theirs.start(paused=True)
    fill(theirs)
    jobs = {job.id: job for job in theirs.get_jobs()}
    theirs.shutdown()
    return jobs


def every_trigger(theirs: TheirScheduler) -> None:
    for name, make in TRIGGERS.items():
        theirs.add_job(
            f"{__name__}:work", make(), args=ARGUMENTS, kwargs={"key": [1, 2]}, id=name, name=f"the {name}",
            misfire_grace_time=42, coalesce=False, max_instances=3, executor="pool",
        )  # fmt: skip


def one_job(theirs: TheirScheduler) -> None:
    theirs.add_job("json:dumps", IntervalTrigger(hours=1, timezone="UTC"), args=[1], id="one")


def another_job(theirs: TheirScheduler, argument: Any) -> None:
    theirs.add_job("json:dumps", IntervalTrigger(hours=1, timezone="UTC"), args=[argument], id="another")


def stored(url: str, **options: Any) -> dict[str, Job]:
    store = open_store(url, **options)
    try:
        return {job.id: job for job in store.get_all_jobs()}
    finally:
        store.shutdown()


def fires(trigger: Any, start: datetime, number: int = 8) -> list[datetime]:
    # Told of a fire before, APScheduler's AndTrigger never comes back.
    combined = type(trigger).__name__ == "AndTrigger"
    found: list[datetime] = []
    previous, now = None, start
    while len(found) < number and (fire := trigger.get_next_fire_time(previous, now)) is not None:
        found.append(fire.astimezone(UTC))
        previous, now = (None, fire + timedelta(microseconds=1)) if combined else (fire, fire)
    return found


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_SECRET_KEY", raising=False)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/theirs.sqlite"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ours.db"


@pytest.fixture
def clean_redis(redis_server: Redis) -> Iterator[Redis]:
    yield redis_server
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushdb()


def assert_same(theirs: dict[str, Any], ours: dict[str, Job]) -> None:
    assert ours.keys() == theirs.keys()
    for name, job in ours.items():
        their = theirs[name]
        assert job.next_run_time == their.next_run_time, name
        assert job.call.func == f"{__name__}:work"
        assert (job.args, dict(job.kwargs), job.name) == (ARGUMENTS, {"key": [1, 2]}, f"the {name}")
        assert (job.misfire_grace_time, job.coalesce, job.max_instances, job.executor) == (42, False, 3, "pool")
        for start in (datetime(2031, 1, 1, tzinfo=UTC), datetime(2032, 6, 15, 17, 30, tzinfo=UTC)):
            assert fires(job.trigger, start) == fires(their.trigger, start), name


# -- what is taken over --------------------------------------------------------------------------------------------


def test_jobs_of_every_trigger_come_from_a_table_with_the_same_fire_times(source: str, target: str) -> None:
    theirs = write(TheirTable(source), every_trigger)
    code, output = call(source, target, "--allow-pickle")
    assert (code, first_line(output)) == (0, f"{len(TRIGGERS)} jobs imported, unsigned")
    assert_same(theirs, stored(target))


def test_jobs_of_every_trigger_come_from_redis_with_the_same_fire_times(clean_redis: Redis, target: str) -> None:
    theirs = write(TheirRedisStore(port=clean_redis.port), every_trigger)
    before = _contents(clean_redis)
    code, output = call(clean_redis.url, target, "--allow-pickle")
    assert (code, first_line(output)) == (0, f"{len(TRIGGERS)} jobs imported, unsigned")
    assert_same(theirs, stored(target))
    assert _contents(clean_redis) == before


def _contents(server: Redis) -> dict[bytes, bytes | None]:
    with redis.Redis.from_url(server.url) as client:
        return {key: client.dump(key) for key in client.scan_iter()}


def test_jobs_go_into_the_redis_they_came_from_beside_the_old_ones(clean_redis: Redis) -> None:
    theirs = write(TheirRedisStore(port=clean_redis.port), every_trigger)
    before = _contents(clean_redis)
    assert call(clean_redis.url, clean_redis.url, "--allow-pickle")[0] == 0
    assert_same(theirs, stored(clean_redis.url))
    assert before.items() <= _contents(clean_redis).items()


def test_tables_and_keys_of_other_names_are_read(source: str, target: str, clean_redis: Redis) -> None:
    write(TheirTable(source, tablename="their_jobs"), one_job)
    assert call(source, target, "--allow-pickle", "--table", "their_jobs")[0] == 0
    write(TheirRedisStore(port=clean_redis.port, jobs_key="a.jobs", run_times_key="a.times"), one_job)
    keys = ("--jobs-key", "a.jobs", "--run-times-key", "a.times")
    assert call(clean_redis.url, target, "--allow-pickle", "--replace", *keys)[0] == 0
    assert list(stored(target)) == ["one"]


def test_jitter_is_kept_and_a_paused_job_stays_paused(source: str, target: str) -> None:
    def fill(theirs: TheirScheduler) -> None:
        trigger = IntervalTrigger(hours=1, jitter=30, timezone="UTC")
        theirs.add_job("json:dumps", trigger, args=[1], id="paused", next_run_time=None)

    write(TheirTable(source), fill)
    assert call(source, target, "--allow-pickle")[0] == 0
    job = stored(target)["paused"]
    assert (job.next_run_time, job.trigger.jitter) == (None, 30)


def test_jobs_can_be_imported_paused(source: str, target: str) -> None:
    write(TheirTable(source), every_trigger)
    assert call(source, target, "--allow-pickle", "--pause")[0] == 0
    assert {job.next_run_time for job in stored(target).values()} == {None}


def test_an_imported_job_runs(source: str, target: str, tmp_path: Path) -> None:
    made = tmp_path / "made"

    def fill(theirs: TheirScheduler) -> None:
        moment = datetime.now(UTC) + timedelta(seconds=2)
        theirs.add_job("os:mkdir", "date", run_date=moment, args=[str(made)], misfire_grace_time=None, id="once")

    write(TheirTable(source), fill)
    assert call(source, target, "--allow-pickle")[0] == 0
    ended = Event()
    with BackgroundScheduler(jobstores={"default": {"type": "sqlalchemy", "url": target}}) as scheduler:
        scheduler.add_listener(lambda event: ended.set(), EVENT_JOB_EXECUTED)
        assert ended.wait(30)
    assert made.is_dir()


def test_an_exported_file_is_imported_without_any_pickle(target: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    with BackgroundScheduler(timezone="UTC") as scheduler:
        scheduler.add_job("json:dumps", "interval", hours=1, args=[[1]], id="exported")
        scheduler.export_jobs(str(file))
        [job] = scheduler.get_jobs()
    code, output = call(str(file), target)
    assert (code, first_line(output)) == (0, "1 job imported, unsigned")
    assert stored(target)["exported"].next_run_time == job.next_run_time


@pytest.mark.parametrize("where", ["option", "environment", "beside the database"])
def test_what_is_imported_is_signed_with_the_key_that_an_app_would_use(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    key = "k" * 32
    options = []
    if where == "environment":
        monkeypatch.setenv("MAINSPRING_SECRET_KEY", key)
    else:
        file = tmp_path / ("key" if where == "option" else "ours.db.key")
        file.write_text(f"{key}\n")
        file.chmod(0o600)
        options = ["--key-file", str(file)] if where == "option" else []
    write(TheirTable(source), one_job)
    code, output = call(source, target, "--allow-pickle", *options)
    assert (code, first_line(output)) == (0, "1 job imported, signed")
    assert list(stored(target, codec=Codec(Keyring([key])))) == ["one"]


def test_apscheduler_need_not_be_installed(source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(TheirTable(source), every_trigger)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("apscheduler", "pytz")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert call(source, target, "--allow-pickle")[0] == 0
    assert len(stored(target)) == len(TRIGGERS)


def test_progress_is_shown_on_a_terminal(source: str, target: str) -> None:
    write(TheirTable(source), every_trigger)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mainspring", "import", source, target, "--allow-pickle"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert (done.returncode, first_line(done.stdout)) == (0, f"{len(TRIGGERS)} jobs imported, unsigned")
    assert "Reading" in shown
    assert "100%" in shown


# -- who runs them -------------------------------------------------------------------------------------------------


def due_soon(theirs: TheirScheduler, made: Path) -> None:
    trigger = IntervalTrigger(seconds=1, timezone="UTC")
    theirs.add_job("os:makedirs", trigger, args=[str(made), 0o777, True], misfire_grace_time=None, id="often")


def runs_in_a_worker_of(app: Mainspring, made: Path) -> bool:
    """Work until the job `often` has run once."""
    ended = Event()
    app.on(EVENT_JOB_EXECUTED, lambda event: ended.set())
    with app:
        app.start(work=True)
        return ended.wait(30) and made.is_dir()


def test_a_job_imported_for_a_queue_is_run_by_the_workers_of_an_app_that_has_not_started_before(
    source: str, target: str, tmp_path: Path
) -> None:
    write(TheirTable(source), lambda theirs: due_soon(theirs, tmp_path / "made"))
    code, output = call(source, target, "--allow-pickle", "--queue", "default")
    assert (code, first_line(output)) == (0, "1 job imported, signed")
    assert f"The workers of an app on {target} run them: mainspring worker MODULE:APP -Q default" in output
    assert runs_in_a_worker_of(Mainspring(target), tmp_path / "made")


def test_jobs_that_keep_their_executors_name_the_scheduler_that_runs_them_and_the_way_to_workers(
    source: str, target: str
) -> None:
    write(TheirTable(source), one_job)
    _, output = call(source, target, "--allow-pickle")
    assert "A scheduler that has the executor 'default' runs them: BackgroundScheduler(" in output
    assert f'"type": "sqlalchemy", "url": "{target}"' in output
    assert "import with --queue default" in output


def test_unsigned_jobs_of_a_queue_are_said_to_need_registered_tasks(source: str, clean_redis: Redis) -> None:
    write(TheirTable(source), one_job)
    code, output = call(source, clean_redis.url, "--allow-pickle", "--queue", "mail")
    assert (code, first_line(output)) == (0, "1 job imported, unsigned")
    assert "-Q mail" in output
    assert "registered tasks only" in output
    job = stored(clean_redis.url)["one"]
    assert (job.executor, job.queue) == ("queue", "mail")


def test_a_name_that_no_queue_can_have_is_refused(source: str, target: str) -> None:
    code, output = call(source, target, "--queue", ".default")
    assert code == 2
    assert "'.default' cannot name a queue" in output


def test_a_dry_run_for_a_queue_makes_no_key(source: str, target: str, tmp_path: Path) -> None:
    write(TheirTable(source), one_job)
    code, output = call(source, target, "--allow-pickle", "--queue", "default", "--dry-run")
    assert code == 0
    assert "1 job would be imported, signed" in output
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.sqlite"]


def test_a_run_that_waits_for_an_executor_does_not_block_its_job_after_it_was_moved_to_a_queue(
    source: str, target: str, tmp_path: Path
) -> None:
    write(TheirTable(source), lambda theirs: due_soon(theirs, tmp_path / "made"))
    (tmp_path / "ours.db.key").write_text("k" * 32)
    (tmp_path / "ours.db.key").chmod(0o600)
    assert call(source, target, "--allow-pickle")[0] == 0
    with Mainspring(target) as app:
        app.start()
        while not app.count(status="pending"):  # a fire that only a scheduler with that executor would run
            time.sleep(0.05)
        app.stop()
        assert [queue.name for queue in app.store.stats().queues] == [".default"]
    assert call(source, target, "--allow-pickle", "--replace", "--queue", "default")[0] == 0
    assert runs_in_a_worker_of(Mainspring(target), tmp_path / "made")


@pytest.mark.parametrize("again", ["while it is set aside", "while another has its id"])
def test_a_job_that_was_set_aside_is_replaced_and_no_longer_shown_as_broken(
    source: str, target: str, again: str
) -> None:
    write(TheirTable(source), one_job)
    assert call(source, target, "--allow-pickle")[0] == 0
    with Mainspring(target) as app:
        assert app.jobs() == []  # unsigned, so it is set aside
        assert [job.id for job in app.broken()] == ["one"]
        if again == "while another has its id":
            app.add_job("json:dumps", "interval", hours=1, args=[1], id="one")
    code, output = call(source, target, "--allow-pickle", "--queue", "default")
    assert code == 1
    assert "('one'); nothing was imported. --replace overwrites them" in output
    assert call(source, target, "--allow-pickle", "--queue", "default", "--replace")[0] == 0
    with Mainspring(target) as app:
        assert [job.id for job in app.jobs()] == ["one"]
        assert app.broken() == []


# -- what is not done ----------------------------------------------------------------------------------------------


def test_pickles_are_not_opened_unasked(source: str, target: str, tmp_path: Path) -> None:
    write(TheirTable(source), one_job)
    code, output = call(source, target)
    assert code == 2
    assert "--allow-pickle" in output
    assert not (tmp_path / "ours.db").exists()


def test_importing_twice_is_refused_as_a_whole_and_named(source: str, target: str) -> None:
    write(TheirTable(source), one_job)
    assert call(source, target, "--allow-pickle")[0] == 0
    write(TheirTable(source), lambda theirs: another_job(theirs, 2))
    before = stored(target)["one"].version
    code, output = call(source, target, "--allow-pickle")
    assert code == 1
    assert "1 of the 2 jobs are in sqlite:///" in output
    assert "('one'); nothing was imported. --replace overwrites them" in output
    assert {job.id: job.version for job in stored(target).values()} == {"one": before}
    assert call(source, target, "--allow-pickle", "--replace")[0] == 0
    assert sorted(stored(target)) == ["another", "one"]


def test_a_dry_run_names_the_jobs_that_are_too_late_to_run(source: str, target: str) -> None:
    theirs, store = TheirScheduler(timezone="UTC"), TheirTable(source)
    store.start(theirs, "default")
    for name, grace in (("dropped", 60), ("kept", None)):
        job = theirs.add_job("json:dumps", "interval", hours=1, args=[1], id=name, misfire_grace_time=grace)
        job.coalesce, job.max_instances, job.next_run_time = True, 1, datetime(2026, 1, 1, tzinfo=UTC)
        store.add_job(job)
    store.shutdown()
    output = call(source, target, "--allow-pickle", "--dry-run")[1]
    late = "job 'dropped' is overdue since 2026-01-01 00:00:00+00:00 and will not run for it: its grace is 60 s"
    assert late in output
    assert "'kept' is overdue" not in output


def test_a_dry_run_names_the_jobs_and_changes_nothing(source: str, target: str, tmp_path: Path) -> None:
    write(TheirTable(source), every_trigger)
    before = (tmp_path / "theirs.sqlite").read_bytes()
    code, output = call(source, target, "--allow-pickle", "--dry-run")
    assert code == 0
    assert f"{len(TRIGGERS)} jobs would be imported" in output
    assert all(name in output for name in TRIGGERS)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.sqlite"]
    assert (tmp_path / "theirs.sqlite").read_bytes() == before


def test_an_evil_pickle_is_not_executed_but_reported_and_the_others_are_imported(
    source: str, target: str, tmp_path: Path
) -> None:
    write(TheirTable(source), one_job)
    trace = tmp_path / "evil-was-here"
    engine = create_engine(source)
    with engine.begin() as connection:
        insert = text("INSERT INTO apscheduler_jobs VALUES (:id, NULL, :state)")
        connection.execute(insert, {"id": "evil", "state": pickle.dumps(Evil(trace))})
        connection.execute(insert, {"id": "noise", "state": b"not a pickle"})
    engine.dispose()
    code, output = call(source, target, "--allow-pickle")
    assert code == 1
    assert "job 'evil' is left alone: UnpicklingError: it names posix:mkdir" in output
    assert "job 'noise' is left alone: " in output
    assert "1 job imported, unsigned, 2 left alone" in output
    assert not trace.exists()
    assert list(stored(target)) == ["one"]


@pytest.mark.parametrize(
    "hostile",
    [
        b"cbuiltins\neval\n(S'1/0'\ntR.",
        b"cbuiltins\ngetattr\n(cdatetime\ndatetime\nS'now'\ntR.",
        b"capscheduler.util\nref_to_obj\n(S'os:abort'\ntR.",
        b"czoneinfo\nZoneInfo._unpickle.__globals__\n.",
        b"cmainspring.task\nref_to_obj\n(S'os:abort'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x05abort\x93)R.",
    ],
)
def test_no_name_beyond_the_list_is_ever_looked_up(hostile: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError):
        read_job(hostile)


def test_a_type_of_the_users_own_is_named_and_can_be_permitted(source: str, target: str, tmp_path: Path) -> None:
    write(TheirTable(source), lambda theirs: another_job(theirs, Money(5)))
    name = f"{Money.__module__}:Money"
    code, output = call(source, target, "--allow-pickle")
    assert code == 1
    assert f"--trust-classes {name}" in output
    assert "0 jobs imported, unsigned, 1 left alone" in output
    (tmp_path / "key").write_text("k" * 32)
    arguments = ("--allow-pickle", "--trust-classes", name, "--key-file", str(tmp_path / "key"))
    code, output = call(source, target, *arguments)
    assert (code, first_line(output)) == (0, "1 job imported, signed")
    assert stored(target, codec=Codec(Keyring(["k" * 32])))["another"].args == (Money(5),)


def test_what_is_not_there_is_said_with_what_is_near(target: str, source: str, clean_redis: Redis) -> None:
    code, output = call(source, target, "--allow-pickle")
    assert code == 1
    assert "there is no file" in output
    write(TheirTable(source), one_job)
    assert "did you mean 'apscheduler_jobs'?" in call(source, target, "--allow-pickle", "--table", "apscheduler_job")[1]
    assert "has no key 'apscheduler.jobs'" in call(clean_redis.url, target, "--allow-pickle")[1]
    assert "is neither a file nor a URL" in call("nowhere.json", target)[1]
    assert "ends with this command" in call(source, "memory://", "--allow-pickle")[1]


def test_a_file_of_apschedulers_is_refused_unopened(target: str, tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text('{"scheduler_version": "3.11.3", "jobs": []}')
    code, output = call(str(tmp_path / "theirs.json"), target)
    assert code == 1
    assert "holds pickles" in output
