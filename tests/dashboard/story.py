"""A small shop: every status, every kind of text that a page shows, and hostile words in all of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mainspring import Mainspring
from mainspring.executors.current_run import current_run
from mainspring.node.heartbeat import describe

__all__ = ["EVIL", "Story", "make_story"]

LIMIT = 90.0
EVIL = "<img src=x onerror=alert(1)>'\"</script><script>alert(2)</script>{{7*7}}"
"""Shown as text, wherever it turns up."""


class Story:
    """An app with runs of every kind, and their ids."""

    def __init__(self, url: str, name: str = "shop") -> None:
        self.app = app = Mainspring(
            url, name=name, secret_key="k" * 32, timezone="Europe/Berlin", code="1.0", queues=["exports", "mail"]
        )
        self.gate = False

        @app.task(name="shop.payments:capture", queue="payments", retries=2)
        def capture(order: int, amount: str = "1.00", api_key: str = "") -> dict[str, int]:
            """Capture the money of an order."""
            return {"order": order}

        @app.task(name="shop.payments:reconcile", queue="payments", retries=1, backoff=(0.01,))
        def reconcile(since: str, token: str = "") -> None:
            run = current_run()
            run.progress(12, 20, "charges")
            run.update(last=EVIL)
            run.log(EVIL)
            logging.getLogger("shop").warning("slow answer")
            raise ConnectionError(f"stripe did not answer {EVIL}")

        @app.task(name="shop.media:transcode", queue="media", timeout=600)
        def transcode(clip: int) -> None:
            current_run().progress(62, 100, "frames")
            while not self.gate:
                time.sleep(0.01)

        @app.task(name=f"evil:{EVIL}", queue="mail")
        def evil(text: str) -> str:
            return text

        @app.task(name="shop.exports:export", queue="exports")
        def export(month: str) -> None: ...

        self.capture, self.reconcile, self.transcode, self.evil, self.export = (
            capture,
            reconcile,
            transcode,
            evil,
            export,
        )

    def tell(self) -> None:
        """Let it happen."""
        app = self.app
        app.start(work=True, queues=["payments", "media", "mail", "default"], threads=4)
        self.good = self.capture.enqueue(1, api_key="sk_live_canary").id
        self.failed = self.reconcile.enqueue("14:10", token="token_canary").id
        self.evil_run = self.evil.options(group=EVIL).enqueue(EVIL).id
        app.wait([self.good, self.failed, self.evil_run], LIMIT)
        self.running = self.transcode.enqueue(88213).id
        self.waiting = [self.export.enqueue("2026-10").id for _ in range(3)]
        self.delayed = self.capture.options(delay=3600).enqueue(2).id
        self.cancelled = self.export.enqueue("2025-01").id
        with app.acting(EVIL, EVIL):
            app.cancel(self.cancelled)
        app.mark(EVIL)
        self._settle()

    def _settle(self) -> None:
        """Wait until the run that runs has said how far it is, and the node has said what it executes."""
        app, deadline = self.app, time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if app.get(self.running).progress is not None:
                break
            time.sleep(0.01)
        assert app.node is not None
        link = app.node.links["default"]
        app.store.beat(describe(link), ttl=30)

    def close(self) -> None:
        """End it."""
        self.gate = True
        self.app.close()


@contextmanager
def make_story(folder: Path) -> Iterator[Story]:
    """Make a shop in a SQLite file, and close it."""
    story = Story(f"sqlite:///{folder}/shop.db")
    try:
        story.tell()
        yield story
    finally:
        story.close()
