"""The doctor looks at stores that have something wrong, says what, and leaves everything as it was."""

from __future__ import annotations

import json
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.app.insight.doctor import Diagnosis, Finding, Mark, diagnose
from mainspring.cli import main
from mainspring.core.insight.wording import duration
from mainspring.jobstores.base import NodeInfo, RunQuery
from mainspring.jobstores.health import enforce
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy import health as sql_health

KEY, OTHER = "a key of 32 bytes for the tests", "another key of 32 bytes for them"
MakeApp = Callable[..., Mainspring]


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take neither keys nor the kind of disk from whoever runs the tests."""
    monkeypatch.delenv("MAINSPRING_SECRET_KEY", raising=False)
    monkeypatch.setattr(sql_health, "file_system", lambda path: "ext4")
    monkeypatch.setattr(sql_health, "FREE_DISK_BYTES", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def make_app(path: Path) -> Iterator[MakeApp]:
    """Make apps on the same file."""
    with ExitStack() as stack:

        def make(url: Any = None, **options: Any) -> Mainspring:
            app = Mainspring(url or f"sqlite:///{path}", **{"timezone": "UTC", "secret_key": KEY, **options})
            stack.callback(app.close)
            return app

        yield make


@pytest.fixture
def app(make_app: MakeApp) -> Mainspring:
    app = make_app()
    app.task(known)
    _ = app.store.beat()
    return app


def known() -> None: ...


def missing() -> None: ...


def node(app: Mainspring, id: str = "n1", **fields: Any) -> None:
    """Announce a node that serves the default queue."""
    told = {"queues": ("default",), "host": "host", "pid": 7, **fields}
    app.store.beat(NodeInfo(id=id, started_at=app.store.beat(), **told), 60)


def wrong(found: Diagnosis) -> list[Finding]:
    return [finding for finding in found.findings if finding.mark is not Mark.OK]


def one(found: Diagnosis) -> Finding:
    [finding] = wrong(found)
    return finding


def test_a_store_that_is_well_has_a_line_for_each_thing_that_was_looked_at(app: Mainspring) -> None:
    node(app)
    app.enqueue(known)
    app.add_job(known, "interval", hours=1)
    found = diagnose(app)
    assert wrong(found) == []
    assert (found.ok, found.level) == (True, "durable")
    subjects = [finding.subject for finding in found.findings]
    assert subjects == ["store", "durability", "clock", "key", "nodes", "queues", "broken", "schedules", "tasks"]


def test_a_job_that_is_overdue_is_a_problem_and_says_whether_anybody_is_there(app: Mainspring) -> None:
    app.add_job(known, "interval", hours=1, id="hourly")
    app.add_job(known, "interval", hours=2, id="second")
    app.add_job(known, "interval", hours=1, id="paused").pause()
    nobody = one(diagnose(app))
    assert (nobody.mark, nobody.subject) == (Mark.WARNING, "schedules")
    assert nobody.text.startswith("no living node could fire 2 jobs; the next is the job 'hourly', in ")
    assert nobody.advice.startswith("start a node: mainspring worker MODULE:APP")
    app.store.shift_clock(6 * 3600)
    late = next(finding for finding in wrong(diagnose(app)) if finding.subject == "schedules")
    assert late.mark is Mark.PROBLEM
    assert late.text == "the job 'hourly' is 5 h overdue, and 1 other job: no living node could fire it"
    node(app)
    late = next(finding for finding in wrong(diagnose(app)) if finding.subject == "schedules")
    assert late.text.endswith("the living nodes do not fire it")


def test_a_job_that_cannot_be_read_here_is_seen_to_be_overdue_all_the_same(app: Mainspring, make_app: MakeApp) -> None:
    app.add_job(known, "interval", hours=1, id="hourly")
    stranger = make_app(secret_key=OTHER)
    stranger.store.shift_clock(6 * 3600)
    late = next(finding for finding in wrong(diagnose(stranger)) if finding.subject == "schedules")
    assert late.text == "the job that cannot be read here is 5 h overdue: no living node could fire it"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (7200, "2 h"), (90_000, "1 d 1 h"), (86_400, "1 d")],
)
def test_a_length_of_time_is_told_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration(round(seconds * 1e6)) == words


def test_a_queue_that_nobody_serves_is_a_problem_once_a_run_of_it_is_due(app: Mainspring) -> None:
    node(app, queues=("mail",))
    node(app, "n2", state="draining")
    app.as_task(known).options(delay=3600).enqueue()
    later = one(diagnose(app))
    assert (later.mark, later.subject) == (Mark.WARNING, "queues")
    assert later.text == "queue 'default' has 1 run for later, and no living node serves it"
    app.enqueue(known)
    due = one(diagnose(app))
    assert (due.mark, due.advice) == (Mark.PROBLEM, "start one: mainspring worker MODULE:APP -Q default")
    node(app, "n3")
    assert diagnose(app).ok


def test_a_queue_that_is_paused_is_a_warning(app: Mainspring) -> None:
    app.pause_queue("default")
    app.enqueue(known)
    paused = one(diagnose(app))
    assert (paused.mark, paused.text) == (Mark.WARNING, "queue 'default' is paused, with 1 run waiting")


def test_the_queue_of_an_executor_is_called_by_its_name(app: Mainspring, make_app: MakeApp) -> None:
    from mainspring.testing.conformance.helpers import add_run

    add_run(app.store, queue=".pool")
    found = one(diagnose(app, code=False))
    assert found.text.startswith("executor 'pool' has 1 run waiting")
    assert found.advice == "start a scheduler that has it"


def test_nodes_that_are_silent_or_have_lost_threads_are_told(app: Mainspring) -> None:
    node(app, stuck=2)
    app.store.shift_clock(12)
    told = [finding for finding in wrong(diagnose(app)) if finding.subject == "nodes"]
    assert [finding.mark for finding in told] == [Mark.WARNING] * 2
    assert told[0].text == "node host:7 sent its last heartbeat 12 s ago, and should send one every 5 s"
    assert "has lost 2 threads" in told[1].text


def test_a_clock_that_is_off_is_told_with_its_side(app: Mainspring) -> None:
    app.store.shift_clock(7200)
    ahead = one(diagnose(app))
    assert (ahead.mark, ahead.subject) == (Mark.WARNING, "clock")
    assert ahead.text.startswith("the store's clock is 7200.0 s ahead of this machine's, give or take ")
    app.store.shift_clock(-14400)
    assert one(diagnose(app)).text.startswith("the store's clock is 7200.0 s behind this machine's")


def test_a_store_that_others_may_write_to_without_a_key_is_a_warning(path: Path, make_app: MakeApp) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    finding = one(diagnose(make_app(store, secret_key=None)))
    assert (finding.mark, finding.subject) == (Mark.WARNING, "key")
    assert "MAINSPRING_SECRET_KEY" in finding.advice


def test_records_that_were_set_aside_are_counted_and_the_first_are_named(app: Mainspring, path: Path) -> None:
    node(app)
    app.enqueue_many(app.as_task(known).call() for _ in range(5))
    job = app.add_job(known, "interval", hours=1, id="hourly")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE mainspring_runs SET payload = x'00'")
        connection.execute("UPDATE mainspring_jobs SET frame = x'00'")
    connection.close()
    app.store.claim([(["default"], 10)], node="n1", token="t1", lease=60)
    assert app.store.lookup_job(job.id) is None
    jobs, runs = wrong(diagnose(app))
    assert jobs.text.startswith("1 job was set aside: 'hourly' (")
    assert runs.text.startswith("5 runs were set aside: ")
    assert runs.text.endswith(" and 2 more")
    assert {jobs.mark, runs.mark} == {Mark.PROBLEM}
    assert {jobs.subject, runs.subject} == {"broken"}


def test_what_cannot_be_read_here_is_told_and_left_as_it_was(app: Mainspring, make_app: MakeApp) -> None:
    node(app)
    app.enqueue(known)
    app.add_job(known, "interval", hours=1, id="hourly")
    stranger = make_app(secret_key=OTHER)
    finding = one(diagnose(stranger))
    assert (finding.mark, finding.subject) == (Mark.PROBLEM, "records")
    assert finding.text.startswith("2 records cannot be read here: 'hourly' (unknown_key: ")
    by_url = one(diagnose(stranger, code=False))
    assert by_url.mark is Mark.WARNING
    assert "set MAINSPRING_SECRET_KEY" in by_url.advice
    assert app.store.get_jobs(broken=True).broken == []
    assert [job.id for job in app.store.get_all_jobs()] == ["hourly"]
    assert app.store.stats(RunQuery()).matching == 1


def test_what_was_stored_before_there_was_a_key_is_to_be_stored_again(
    app: Mainspring, make_app: MakeApp, path: Path
) -> None:
    node(app)
    keyless = make_app(SQLAlchemyJobStore(f"sqlite:///{path}"), secret_key=None)
    keyless.task(known).enqueue()
    finding = one(diagnose(app))
    assert (finding.mark, finding.subject) == (Mark.PROBLEM, "records")
    assert "(unsigned: " in finding.text
    assert finding.advice.startswith("they were stored without a key")


def test_functions_that_nobody_here_knows_are_named_once_each(app: Mainspring, make_app: MakeApp) -> None:
    node(app)
    other = make_app()
    task = other.task(name="old:gone")(missing)
    for _ in range(3):
        task.enqueue()
    other.add_job(task, "interval", hours=1)
    [finding] = wrong(diagnose(app))
    assert (finding.mark, finding.subject) == (Mark.PROBLEM, "tasks")
    assert finding.text.startswith("'old:gone' is stored and cannot be called here: cannot import 'old'")
    assert diagnose(other).ok
    assert diagnose(make_app(), code=False).ok  # a URL has no code to compare with


def test_a_function_that_lacks_on_every_node_is_a_problem_and_on_some_a_warning(app: Mainspring) -> None:
    node(app, missing=("old:gone",))
    everywhere = one(diagnose(app))
    assert (everywhere.mark, everywhere.subject) == (Mark.PROBLEM, "tasks")
    assert everywhere.text == "'old:gone' cannot be called by any node: host:7"
    node(app, "n2", pid=8)
    some = one(diagnose(app))
    assert (some.mark, some.text) == (Mark.WARNING, "'old:gone' cannot be called by this node: host:7")


def test_of_very_many_runs_the_newest_are_looked_at(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    from mainspring.app.insight import doctor

    monkeypatch.setattr(doctor, "PENDING_PAGE_RUNS", 2)
    monkeypatch.setattr(doctor, "MOST_PENDING_PAGES", 3)
    node(app)
    app.enqueue_many(app.as_task(known).call() for _ in range(7))
    assert diagnose(app).findings[-1].text.endswith("that jobs and waiting runs call (the newest 6 were checked)")


def test_a_level_below_what_is_required_is_a_problem(app: Mainspring) -> None:
    finding = one(diagnose(app, require="replicated"))
    assert (finding.mark, finding.subject) == (Mark.PROBLEM, "durability")
    assert finding.advice == "the app has require='replicated' and will not start"
    assert diagnose(app, require="durable").ok


def test_a_file_that_is_not_there_is_not_made(make_app: MakeApp, tmp_path: Path) -> None:
    found = diagnose(make_app(f"sqlite:///{tmp_path}/jbos.db", secret_key=None))
    assert one(found).text == f"there is no file {tmp_path}/jbos.db"
    assert list(tmp_path.iterdir()) == []


def test_a_slash_that_is_missing_is_named(make_app: MakeApp) -> None:
    found = one(diagnose(make_app("sqlite://jobs.db")))
    assert "three slashes for a relative path: sqlite:///jobs.db" in found.text


def test_a_store_that_does_not_answer_is_one_problem_without_the_password(make_app: MakeApp) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = diagnose(make_app(f"postgresql://me:s3cr3t@127.0.0.1:{unused.getsockname()[1]}/jobs"))
    assert one(found).text.startswith("StoreUnavailable: postgresql+psycopg://me:***@127.0.0.1")
    assert "s3cr3t" not in str(found)


# -- the app's own demand --------------------------------------------------------------------------------------------


def test_an_app_does_not_start_below_what_it_requires(path: Path, make_app: MakeApp) -> None:
    app = make_app(require="durable", store_options={"synchronous": "NORMAL"})
    with pytest.raises(ValueError, match=r"require='durable'.* is volatile: synchronous is NORMAL.*set synchronous"):
        app.start()
    assert not app.running
    assert one(diagnose(app)).advice == "the app has require='durable' and will not start"
    good = make_app(require="durable")
    good.start()
    assert good.running
    with pytest.raises(ValueError, match=r"require='durabel' is no level.*did you mean 'durable'"):
        make_app(require="durabel")


def test_a_process_that_only_enqueues_may_ask_by_itself(make_app: MakeApp) -> None:
    app = make_app(require="replicated(2)")
    app.enqueue("mainspring:collect", 0)
    with pytest.raises(ValueError, match=r"require='replicated\(2\)', and .* is durable"):
        enforce(app.store, app.require)
    enforce(app.store, make_app().require)


# -- the command line --------------------------------------------------------------------------------------------------


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["doctor", *words])
    return result.exit_code, result.output


def test_the_command_prints_a_mark_per_line_with_what_to_do_and_ends_with_1(app: Mainspring, path: Path) -> None:
    url = f"sqlite:///{path}"
    assert call(url, "--require", "durable")[0] == 0
    app.enqueue(known)
    code, text = call(url)
    assert code == 1
    lines = text.splitlines()
    assert lines[0].startswith("ok       store       SQLite 3")
    assert any(line.startswith("problem  queues      queue 'default' has 1 run waiting") for line in lines)
    assert any(line.startswith("                     -> start one: mainspring worker MODULE:APP") for line in lines)
    assert lines[-1].startswith("durable; 1 problem, ")


def test_the_command_honours_no_color_and_wraps_only_on_a_terminal(app: Mainspring, path: Path) -> None:
    app.as_task(known).options(queue="a-queue-of-a-rather-long-name-" * 4).enqueue()
    arguments = ["doctor", f"sqlite:///{path}"]
    coloured = CliRunner(env={"NO_COLOR": ""}).invoke(main, arguments, color=True).output
    plain = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "80"}).invoke(main, arguments, color=True).output
    assert "\x1b[" in coloured
    assert "\x1b[" not in plain
    assert max(map(len, plain.splitlines())) > 120  # a pipe: one line for each sentence
    assert f"problem  queues      {_text(app, 'queues')}\n" in plain


def _text(app: Mainspring, subject: str) -> str:
    return next(finding.text for finding in diagnose(app, code=False).findings if finding.subject == subject)


def test_the_command_speaks_json(app: Mainspring, path: Path) -> None:
    code, text = call(f"sqlite:///{path}", "--json")
    found = json.loads(text)
    assert (code, found["level"], found["ok"]) == (0, "durable", True)
    assert {"mark", "subject", "text", "advice"} == set(found["findings"][0])


def test_the_command_takes_an_app_and_knows_its_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", KEY)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    code, text = call("myapp:app")
    assert code == 0
    assert "volatile" in text
    assert "knows every function that jobs and waiting runs call" in " ".join(text.split())


def test_the_advice_names_the_app_as_it_was_named(
    app: Mainspring, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", KEY)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = f"from mainspring import Mainspring\nshop = Mainspring('sqlite:///{path}')\n"
    (tmp_path / "doctored_shop.py").write_text(code)
    app.enqueue("builtins:abs", 1)
    text = " ".join(call("doctored_shop:shop")[1].split())
    assert "-> start one: mainspring worker doctored_shop:shop -Q default" in text
    found = one(diagnose(sys.modules["doctored_shop"].shop))
    assert found.advice == "start one: mainspring worker doctored_shop:shop -Q default"


def test_wrong_words_on_the_command_line_are_named() -> None:
    assert "it can be 'durable'" in call("memory://", "--require", "durabel")[1]
    assert "no module 'nowhere'" in call("nowhere:app")[1]
