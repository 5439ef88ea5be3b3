"""How a cluster is started, from which app, and what it shows of itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring.cluster.settings import Settings
from mainspring.core.run import Status
from mainspring.errors import ConfigurationError, install_command
from tests.cluster.kit import Yard, stop, wait_until
from tests.servers import PostgreSQL, Redis


@pytest.mark.parametrize("method", ["forkserver", "fork"])
@pytest.mark.parametrize("kind", ["postgresql", "redis"])
def test_processes_that_share_the_sentinels_memory_work_on_a_server(
    make_yard: Callable[..., Yard], postgresql_server: PostgreSQL, redis_server: Redis, method: str, kind: str
) -> None:
    yard = make_yard(url=(postgresql_server if kind == "postgresql" else redis_server).url, lease=2)
    runs = [yard.jobs.ok.enqueue(1), yard.jobs.nap.enqueue(0.01), yard.jobs.at_gate_apart.enqueue("gate")]
    cluster = yard.start("-p", "2", "--start-method", method)
    yard.await_line("began", runs[2])
    killed = yard.spawned(2)[0]
    os.kill(killed, signal.SIGKILL)
    yard.spawned(3)
    yard.open("gate")
    assert {run.status for run in yard.end(runs)} == {Status.SUCCEEDED}
    assert yard.end([yard.jobs.ok.enqueue(2)])[0].result == 2
    assert stop(cluster) == 0


@pytest.mark.parametrize("path", ["app:app", "app.py", "./app.py:app"])
def test_an_app_in_a_file_of_the_current_folder_is_found(make_yard: Callable[..., Yard], path: str) -> None:
    yard = make_yard(file="app.py")
    run = yard.jobs.ok.enqueue(7)
    assert run.fetch().func == "app:ok"
    assert yard.start("-p", "1", "--burst", app=path).wait(60) == 0
    assert run.fetch().result == 7


def test_a_queue_that_no_task_of_the_app_uses_is_warned_about_with_the_near_one(yard: Yard) -> None:
    done = yard.run("-m", "mainspring", "worker", "jobs:app", "-p", "1", "--burst", "-Q", "defualt,default:2")
    assert done.returncode == 0
    assert done.stderr.count("no task of this app uses the queue 'defualt'; did you mean 'default'?") == 1
    assert "the queue 'default'" not in done.stderr


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("job:app", ["no module 'job' can be imported from the folder '/", "did you mean 'jobs'"]),
        ("jobs:ap", ["has no 'ap'", "app"]),
        ("jobs:ok", ["not a Mainspring app"]),
        ("nowhere.py", ["no file"]),
    ],
)
def test_a_wrong_name_of_the_app_is_a_clear_error(yard: Yard, path: str, words: list[str]) -> None:
    done = yard.run("-m", "mainspring", "worker", path)
    assert done.returncode == 1
    assert [word for word in words if word not in done.stderr] == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["start", "run"])
@pytest.mark.parametrize("command", ["worker", "status"])
def test_an_app_that_its_module_starts_at_import_is_one_error_that_names_the_guard(
    yard: Yard, command: str, verb: str
) -> None:
    with (yard.folder / "jobs.py").open("a") as file:
        file.write(f"\napp.{verb}()\n")
    done = yard.run("-m", "mainspring", command, "jobs:app")
    error, try_next = done.stderr.splitlines()
    assert (done.returncode, try_next) == (1, f"Try: mainspring {command} -h")
    assert "while the module 'jobs' is imported to find its app" in error
    assert 'put it under if __name__ == "__main__":' in done.stderr


def test_what_a_module_enqueues_at_import_is_warned_of_once_in_each_process(yard: Yard) -> None:
    with (yard.folder / "jobs.py").open("a") as file:
        file.write("\nok.enqueue(1)\nok.enqueue(2)\n")
    assert yard.start("-p", "1", "--burst").wait(60) == 0
    assert yard.log().count("a run was enqueued while the module 'jobs' is imported to find its app") == 2


def test_a_module_that_raises_is_one_error_with_the_frames_of_the_user(yard: Yard) -> None:
    (yard.folder / "settings.py").write_text("def read():\n    return {}['region']\n")
    (yard.folder / "torn.py").write_text("import settings\nsettings.read()\n")
    for words in (["torn:app"], ["jobs:app", "--include", "torn"]):
        done = yard.run("-m", "mainspring", "worker", *words)
        assert done.returncode == 1
        assert done.stderr.startswith(f"Error: {words[0]} cannot be imported:\n")
        assert re.findall(r'File ".*/(\w+\.py)"', done.stderr) == ["torn.py", "settings.py"]


def test_a_missing_driver_is_one_error_that_names_the_extra(yard: Yard) -> None:
    (yard.folder / "bare.py").write_text(
        "import sys\nsys.modules['psycopg'] = None\nfrom mainspring import Mainspring\n"
        "app = Mainspring('postgresql://me:secret@localhost/jobs')\n"
    )
    done = yard.run("-m", "mainspring", "worker", "bare:app")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert install_command("postgresql") in done.stderr


def test_an_app_in_memory_has_no_workers(yard: Yard) -> None:
    (yard.folder / "bare.py").write_text("from mainspring import Mainspring\napp = Mainspring('memory://')\n")
    done = yard.run("-m", "mainspring", "worker", "bare:app")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "a worker would never see what others enqueue" in done.stderr


def test_a_store_that_is_away_is_a_line_for_each_try_until_it_is_there(yard: Yard) -> None:
    (yard.folder / "jobs.db").mkdir()
    cluster = yard.start("-p", "1", env={"JOBS_REQUIRE": "durable"})
    yard.await_log("the store does not answer; worker 0 tries again in 1 s: sqlite")
    about_worker = [line for line in yard.log().splitlines() if "orker 0" in line]
    assert [("started as process" in line, "tries again in" in line) for line in about_worker[:3]] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    assert "Traceback" not in yard.log()
    assert cluster.poll() is None
    (yard.folder / "jobs.db").rmdir()
    assert yard.end([yard.jobs.ok.enqueue(3)])[0].result == 3
    assert stop(cluster) == 0


def test_a_run_of_an_unknown_task_is_kept_and_executed_where_it_is_known(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard(lease=2)
    path = yard.folder / "jobs.py"
    whole = path.read_text()
    path.write_text(whole.replace("def ok(", "def not_ok("))
    run = yard.jobs.ok.enqueue(3)
    cluster = yard.start("-p", "1")
    nodes = wait_until(lambda: [node for node in yard.app.nodes() if node.missing])
    assert [node.missing for node in nodes] == [("jobs:ok",)]
    assert [node["missing"] for node in yard.status()["nodes"]] == [["jobs:ok"]]
    assert "missing code: 'jobs:ok'" in yard.run("-m", "mainspring", "status", "jobs:app").stdout
    kept = yard.await_status(run, "pending")
    assert (kept.attempt, kept.failures, kept.errors) == (0, 0, ())
    assert stop(cluster) == 0
    path.write_text(whole)
    yard.start("-p", "1")
    (ended,) = yard.end([run])
    assert (ended.status, ended.result, ended.attempt) == (Status.SUCCEEDED, 3, 1)


def test_status_shows_queues_and_nodes(yard: Yard) -> None:
    runs = [yard.jobs.at_gate.enqueue("gate") for _ in range(3)]
    side = yard.jobs.count_inside.enqueue()
    cluster = yard.start("-p", "1", "-t", "2", "-Q", "default")
    yard.await_line("began", count=2)
    found = yard.status()
    queues = {queue["name"]: queue for queue in found["queues"]}
    assert queues["side"]["waiting"] == 1
    assert found["unserved"] == ["side"]
    assert queues["default"]["running"] >= 2
    assert [node["queues"] for node in found["nodes"]] == [["default"]]
    assert [node["pid"] for node in found["nodes"]] == yard.spawned()
    yard.open("gate")
    yard.end(runs)
    assert yard.status()["counters"]["succeeded"] == 3
    assert stop(cluster) == 0
    assert yard.status()["nodes"] == []
    assert side.cancel()


IN_CODE = """
import os, sys, time
import jobs
from mainspring.cluster import Cluster

if __name__ == "__main__":
    cluster = Cluster(jobs.app, processes=2, threads=2, grace=20, start_method="spawn")
    assert (cluster.stat, cluster.pid, cluster.is_running, cluster.has_stopped) == (None, None, False, False)
    pid = cluster.start()
    assert cluster.is_running and not cluster.is_starting and pid == cluster.pid == cluster.stat.pid
    assert [worker.state for worker in cluster.stat.workers] == ["running", "running"]
    run = jobs.at_gate.enqueue("gate")
    print(pid, run.id, flush=True)
    while not (jobs.FOLDER / "stop").exists():
        time.sleep(0.01)
    while sum(worker.claims for worker in cluster.stat.workers) != 1:
        time.sleep(0.01)
    assert cluster.stop(timeout=0.1) is False
    while not cluster.is_stopping:
        time.sleep(0.01)
    (jobs.FOLDER / "gate").touch()
    assert cluster.stop() and cluster.has_stopped and cluster.stat.state == "stopped"
    assert run.fetch().status == "succeeded", run.fetch()
    assert cluster.start() != pid and cluster.is_running
    with_more = jobs.ok.enqueue(5)
    assert with_more.result(timeout=30) == 5
    cluster.stop()
    print("done", flush=True)
"""


@contextmanager
def started_in_code(yard: Yard) -> Iterator[tuple[subprocess.Popen[str], int, Any]]:
    (yard.folder / "main.py").write_text(IN_CODE)
    main = subprocess.Popen(
        [sys.executable, "main.py"], cwd=yard.folder, env=yard.env, stdout=subprocess.PIPE, text=True
    )
    with main:
        try:
            assert main.stdout is not None
            pid, run_id = main.stdout.readline().split()
            run = yard.app.handle(run_id)
            yard.await_line("began", run)
            yield main, int(pid), run
        finally:
            main.kill()


def test_a_cluster_in_code_starts_shows_itself_stops_and_starts_again(yard: Yard) -> None:
    with started_in_code(yard) as (main, _, _):
        assert main.stdout is not None
        yard.open("stop")
        assert main.stdout.read().strip() == "done"
        assert main.wait(30) == 0
    yard.assert_nothing_stays()


def test_a_cluster_in_code_ends_in_good_order_when_its_parent_is_killed(yard: Yard) -> None:
    with started_in_code(yard) as (main, pid, run):
        main.kill()
        main.wait()
    assert pid in yard.processes()
    yard.open("gate")
    yard.assert_nothing_stays()
    assert run.fetch().status is Status.SUCCEEDED


def test_a_sentinel_that_is_killed_while_its_workers_start_leaves_no_file_behind(yard: Yard) -> None:
    folder = yard.folder / "temporary"
    folder.mkdir()
    cluster = yard.start("-p", "2", env={"TMPDIR": str(folder)})
    yard.await_log("started as process")
    cluster.kill()
    cluster.wait()
    yard.assert_nothing_stays()
    assert os.listdir(folder) == []


def test_what_a_coroutine_opens_when_a_worker_starts_belongs_to_the_loop_of_the_tasks(yard: Yard) -> None:
    run = yard.jobs.pool_is_ours.enqueue()
    assert yard.start("-p", "1", "--burst").wait(60) == 0
    assert run.fetch().result is True


def test_windows_is_told_that_it_has_no_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.cluster.settings.sys", SimpleNamespace(platform="win32"))
    with pytest.raises(ConfigurationError, match=r"execute runs in your program by app\.run\(\)"):
        Settings(app="shop:app")
