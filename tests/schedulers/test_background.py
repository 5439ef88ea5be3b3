"""BackgroundScheduler beside a program: its end, forks, and threads that are not allowed."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from mainspring.schedulers.background import BackgroundScheduler
from tests.schedulers.kit import Program


def test_a_program_that_ends_with_a_scheduler_running_ends_cleanly(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import threading, time
        from mainspring.schedulers.background import BackgroundScheduler

        began = threading.Event()

        def work():
            began.set()
            time.sleep(0.4)
            print("job ended")

        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.add_job(work)
        scheduler.add_job(print, "interval", seconds=3600)
        scheduler.start()
        began.wait()
        print("program ended")
        """,
    ).run()
    assert out.splitlines() == ["program ended", "job ended"]


def test_a_program_that_only_makes_a_scheduler_ends_at_once(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import threading
        from mainspring.schedulers.background import BackgroundScheduler

        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.add_job(print, "interval", seconds=3600)
        print(threading.active_count())
        """,
    ).run()
    assert out == "1\n"


def test_a_shutdown_that_did_not_wait_lets_a_job_end_before_the_program_does(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import threading, time
        from mainspring.schedulers.background import BackgroundScheduler

        began = threading.Event()

        def work():
            began.set()
            time.sleep(0.4)
            print("job ended")

        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.add_job(work)
        scheduler.start()
        began.wait()
        scheduler.shutdown(wait=False)
        print("program ended")
        """,
    ).run()
    assert out.splitlines() == ["program ended", "job ended"]


def test_a_forked_child_sees_it_stopped_and_can_start_its_own(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import os, threading, warnings
        from mainspring.schedulers.background import BackgroundScheduler

        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads

        def say(who, done):
            print(who, "runs")
            done.set()

        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.start()
        scheduler.add_job(print, "interval", seconds=3600, id="kept")
        pid = os.fork()
        if pid == 0:
            print("child", scheduler.state, scheduler.running)
            done = threading.Event()
            own = BackgroundScheduler(timezone="UTC")
            own.add_job(say, args=["own", done])
            own.start()
            done.wait()
            own.shutdown()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print("parent", scheduler.state, [job.id for job in scheduler.get_jobs()], status)
        scheduler.shutdown()
        """,
    ).run()
    assert out.splitlines() == ["child 0 False", "own runs", "parent 1 ['kept'] 0"]


def test_a_child_may_start_the_scheduler_that_its_parent_runs(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import os, threading, warnings
        from mainspring.schedulers.background import BackgroundScheduler

        warnings.simplefilter("ignore", DeprecationWarning)

        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.start()
        pid = os.fork()
        if pid == 0:
            done = threading.Event()
            scheduler.start()
            scheduler.add_job(done.set)
            print("child", done.wait(10))
            scheduler.shutdown()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        done = threading.Event()
        scheduler.add_job(done.set)
        print("parent", done.wait(10), status)
        scheduler.shutdown()
        """,
    ).run()
    assert out.splitlines() == ["child True", "parent True 0"]


def test_a_scheduler_made_before_the_fork_starts_in_each_worker(tmp_path: Path) -> None:
    # As gunicorn --preload does: the application is imported by the master, the workers are its forks.
    out = Program(
        tmp_path,
        """
        import os, threading
        from mainspring.schedulers.background import BackgroundScheduler

        ran = threading.Event()
        scheduler = BackgroundScheduler(timezone="UTC")
        scheduler.add_job(ran.set, id="hello")

        for number in range(3):
            pid = os.fork()
            if pid == 0:
                scheduler.start()
                print("worker", ran.wait(10))
                scheduler.shutdown()
                os._exit(0)
            print(os.waitpid(pid, 0)[1], scheduler.running)
        """,
    ).run()
    assert out.splitlines() == ["worker True", "0 False"] * 3


def test_uwsgi_without_threads_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    uwsgi = types.ModuleType("uwsgi")
    uwsgi.has_threads = False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    scheduler = BackgroundScheduler(timezone="UTC")
    with pytest.raises(RuntimeError, match="--enable-threads"):
        scheduler.start()
    assert not scheduler.running
    uwsgi.has_threads = True  # type: ignore[attr-defined]
    scheduler.start()
    scheduler.shutdown()
