"""The browser of the other tests, and a dashboard of one's own for each module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainspring import Mainspring
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from tests.dashboard.browser.conftest import chromium, complaints, context, page

__all__ = ["chromium", "complaints", "context", "page", "served"]


@contextmanager
def served(app: Mainspring, dashboard: DashboardApp | None = None) -> Iterator[str]:
    """Serve a dashboard; give its address."""
    server = DashboardServer(dashboard or DashboardApp(app), port=0)
    server.start()
    try:
        yield server.url.rstrip("/")
    finally:
        server.stop()
