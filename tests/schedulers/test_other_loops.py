"""Twisted, gevent and Qt, each on its real loop in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schedulers.kit import Program

TWISTED = """
    import asyncio
    from twisted.internet import REACTORreactor as chosen
    chosen.install()
    from twisted.internet import reactor
    from twisted.python import threadable
    from mainspring.events import EVENT_JOB_EXECUTED
    from mainspring.schedulers.twisted import TwistedScheduler

    seen = []

    async def coroutine():
        await asyncio.sleep(0.01)
        return "coroutine", threadable.isInIOThread()

    def plain():
        return "plain", threadable.isInIOThread()

    def hear(event):
        assert threadable.isInIOThread()
        seen.append(event.retval)
        if len(seen) == 2:
            print(sorted(seen))
            scheduler.shutdown()
            print("running", scheduler.running)
            reactor.callLater(0.05, reactor.stop)

    scheduler = TwistedScheduler(timezone="UTC")
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    scheduler.start()
    scheduler.add_job(coroutine)
    scheduler.add_job(plain)
    reactor.callLater(20, reactor.stop)
    reactor.run()
    print("end")
"""


@pytest.mark.parametrize(("reactor", "on_reactor"), [("select", False), ("epoll", False), ("asyncio", True)])
def test_twisted_runs_functions_in_its_threads_and_coroutines_on_a_loop_it_has(
    tmp_path: Path, reactor: str, on_reactor: bool
) -> None:
    out = Program(tmp_path, TWISTED.replace("REACTOR", reactor)).run()
    assert out.splitlines() == [f"[('coroutine', {on_reactor}), ('plain', False)]", "running False", "end"]


def test_twisted_waits_for_what_the_reactors_end_leaves(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import time
        from twisted.internet import reactor
        from mainspring.schedulers.twisted import TwistedScheduler

        def work():
            reactor.callFromThread(reactor.stop)
            time.sleep(0.3)
            print("job ended")

        scheduler = TwistedScheduler(timezone="UTC", reactor=reactor)
        scheduler.start()
        scheduler.add_job(work)
        reactor.run()
        print("reactor ended")
        """,
    ).run()
    assert sorted(out.splitlines()) == ["job ended", "reactor ended"]


GEVENT = """
    PATCH
    import threading
    import gevent
    from gevent.event import Event
    from mainspring.events import EVENT_JOB_EXECUTED
    from mainspring.schedulers.gevent import GeventScheduler

    hub = gevent.get_hub()
    both = Event()
    values = []

    def meet():
        # Two greenlets that wait for each other: they take turns on one hub.
        started.append(1)
        while len(started) < 2:
            gevent.sleep(0.01)
        return gevent.get_hub() is hub

    def hear(event):
        gevent.sleep(0)  # a listener may wait as greenlets do
        assert gevent.get_hub() is hub
        values.append(event.retval)
        if len(values) == 2:
            both.set()

    started = []
    scheduler = GeventScheduler(timezone="UTC")
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    waiter = scheduler.start()
    scheduler.add_job(meet)
    scheduler.add_job(meet)
    assert both.wait(20)
    print(values)
    ending = gevent.spawn(scheduler.shutdown)
    waiter.join(20)
    ending.get(timeout=20)
    print("running", scheduler.running, waiter.ready())
"""
PATCHES = {"patched": "from gevent import monkey; monkey.patch_all()", "unpatched": ""}


@pytest.mark.parametrize("patch", PATCHES)
def test_gevent_runs_jobs_in_greenlets_of_the_hub(tmp_path: Path, patch: str) -> None:
    out = Program(tmp_path, GEVENT.replace("PATCH", PATCHES[patch])).run()
    assert out.splitlines() == ["[True, True]", "running False True"]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("patch", PATCHES)
def test_gevent_is_shut_down_from_a_job(tmp_path: Path, patch: str, wait: bool) -> None:
    source = """
        PATCH
        from mainspring.schedulers.gevent import GeventScheduler

        scheduler = GeventScheduler(timezone="UTC")
        scheduler.add_job(lambda: scheduler.shutdown(wait=WAIT))
        waiter = scheduler.start()
        waiter.join(8)
        print("running", scheduler.running, "ended", waiter.ready())
    """
    out = Program(tmp_path, source.replace("PATCH", PATCHES[patch]).replace("WAIT", str(wait))).run()
    assert out == "running False ended True\n"


@pytest.mark.parametrize("patch", PATCHES)
def test_gevent_lets_what_runs_end_at_shutdown(tmp_path: Path, patch: str) -> None:
    source = """
        PATCH
        import gevent
        from gevent.event import Event
        from mainspring.schedulers.gevent import GeventScheduler

        began = Event()

        def work():
            began.set()
            gevent.sleep(0.3)
            print("job ended")

        scheduler = GeventScheduler(timezone="UTC")
        scheduler.start()
        scheduler.add_job(work)
        began.wait(15)
        scheduler.shutdown()
        print("shut down")
    """
    out = Program(tmp_path, source.replace("PATCH", PATCHES[patch])).run()
    assert out.splitlines() == ["job ended", "shut down"]


@pytest.mark.parametrize("patch", PATCHES)
def test_gevent_runs_coroutine_functions_to_their_end(tmp_path: Path, patch: str) -> None:
    source = """
        PATCH
        import asyncio
        from gevent.event import AsyncResult
        from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
        from mainspring.schedulers.gevent import GeventScheduler

        async def work():
            await asyncio.sleep(0.01)
            return "done"

        result = AsyncResult()
        scheduler = GeventScheduler(timezone="UTC")
        scheduler.add_listener(lambda event: result.set(event.retval), EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        scheduler.start()
        scheduler.add_job(work)
        print(result.get(timeout=15))
        scheduler.shutdown()
    """
    out = Program(tmp_path, source.replace("PATCH", PATCHES[patch])).run()
    assert out == "done\n"


@pytest.mark.parametrize("patch", PATCHES)
def test_a_program_may_end_with_a_gevent_scheduler_running(tmp_path: Path, patch: str) -> None:
    source = """
        PATCH
        from gevent.event import Event
        from mainspring.schedulers.gevent import GeventScheduler

        done = Event()
        scheduler = GeventScheduler(timezone="UTC")
        scheduler.start()
        scheduler.add_job(done.set)
        scheduler.add_job(print, "interval", hours=1)
        print(done.wait(15))
    """
    assert Program(tmp_path, source.replace("PATCH", PATCHES[patch])).run() == "True\n"


def test_qt_calls_listeners_on_the_thread_of_its_loop(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import threading
        from PySide6.QtCore import QCoreApplication, QTimer
        from mainspring.events import EVENT_JOB_EXECUTED, EVENT_SCHEDULER_SHUTDOWN
        from mainspring.schedulers.qt import QtScheduler

        app = QCoreApplication([])
        main = threading.current_thread()
        seen = []

        def hear(event):
            seen.append((event.retval, threading.current_thread() is main))
            if len(seen) == 3:
                print(seen)
                scheduler.shutdown()
                app.quit()

        scheduler = QtScheduler(timezone="UTC")
        scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
        scheduler.start()
        scheduler.add_job(lambda: threading.current_thread() is main, "interval", seconds=0.05)
        QTimer.singleShot(20000, app.quit)
        app.exec()
        print("running", scheduler.running)
        """,
    ).run(QT_QPA_PLATFORM="offscreen")
    assert out.splitlines() == ["[(False, True), (False, True), (False, True)]", "running False"]


def test_qt_works_without_an_application(tmp_path: Path) -> None:
    out = Program(
        tmp_path,
        """
        import threading
        from mainspring.schedulers.qt import QtScheduler

        done = threading.Event()
        scheduler = QtScheduler(timezone="UTC")
        scheduler.start()
        scheduler.add_job(done.set)
        print(done.wait(15))
        scheduler.shutdown()
        """,
    ).run(QT_QPA_PLATFORM="offscreen")
    assert out == "True\n"
