"""A listener may be a coroutine function: every front end awaits it, one with an event loop on that loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schedulers.kit import Program

HEAD = """
    PATCH
    import asyncio, threading
    from mainspring.events import EVENT_JOB_EXECUTED

    main = threading.current_thread()

    async def hear(event):
        await asyncio.sleep(0.01)
        print(event.retval, "here" if threading.current_thread() is main else "elsewhere")
        done()

    began = threading.Event()

    def work():
        began.set()
        return "heard"
"""
PROGRAMS = {
    "background": """
    from mainspring.schedulers.background import BackgroundScheduler

    def done(): pass

    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    scheduler.start()
    scheduler.add_job(work)
    began.wait()
    scheduler.shutdown()
    """,
    "at exit": """
    from mainspring.schedulers.background import BackgroundScheduler

    def done(): pass

    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    scheduler.start()
    scheduler.add_job(work)
    began.wait()
    """,
    "blocking": """
    from mainspring.schedulers.blocking import BlockingScheduler

    def done():
        threading.Thread(target=scheduler.shutdown).start()

    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    scheduler.add_job(work)
    scheduler.start()
    """,
    "asyncio": """
    from mainspring.schedulers.asyncio import AsyncIOScheduler

    async def serve():
        global done
        ended = asyncio.Event()
        done = ended.set
        async with AsyncIOScheduler(timezone="UTC") as scheduler:
            scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
            scheduler.add_job(work)
            await asyncio.wait_for(ended.wait(), 20)

    asyncio.run(serve())
    """,
    "tornado": """
    from mainspring.schedulers.tornado import TornadoScheduler

    async def serve():
        global done
        ended = asyncio.Event()
        done = ended.set
        async with TornadoScheduler(timezone="UTC") as scheduler:
            scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
            scheduler.add_job(work)
            await asyncio.wait_for(ended.wait(), 20)

    asyncio.run(serve())
    """,
    "twisted": """
    from twisted.internet import reactor
    from mainspring.schedulers.twisted import TwistedScheduler

    def stop():
        scheduler.shutdown()
        reactor.callLater(0.05, reactor.stop)

    def done():
        reactor.callFromThread(stop)

    scheduler = TwistedScheduler(timezone="UTC")
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    scheduler.start()
    scheduler.add_job(work)
    reactor.callLater(20, reactor.stop)
    reactor.run()
    """,
    "gevent": """
    import gevent
    from mainspring.schedulers.gevent import GeventScheduler

    ended = []
    done = lambda: ended.append(1)

    scheduler = GeventScheduler(timezone="UTC")
    scheduler.add_listener(hear, EVENT_JOB_EXECUTED)
    scheduler.start()
    scheduler.add_job(work)
    while not ended:
        gevent.sleep(0.01)
    scheduler.shutdown()
    """,
}
PATCHES = {
    "twisted on asyncio": "from twisted.internet import asyncioreactor; asyncioreactor.install()",
    "gevent patched": "from gevent import monkey; monkey.patch_all()",
}


@pytest.mark.parametrize(
    ("front_end", "where"),
    [
        ("background", "elsewhere"),
        ("at exit", "elsewhere"),
        ("blocking", "elsewhere"),
        ("asyncio", "here"),
        ("tornado", "here"),
        ("twisted", "elsewhere"),
        ("twisted on asyncio", "here"),
        ("gevent", "elsewhere"),
        ("gevent patched", "elsewhere"),
    ],
)
def test_a_coroutine_function_that_listens_is_awaited(tmp_path: Path, front_end: str, where: str) -> None:
    program = PROGRAMS.get(front_end) or PROGRAMS[front_end.split()[0]]
    out = Program(tmp_path, HEAD.replace("PATCH", PATCHES.get(front_end, "")) + program).run()
    assert out.splitlines() == [f"heard {where}"]
