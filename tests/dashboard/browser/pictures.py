"""Take the pictures of the documentation: `python -m tests.dashboard.browser.pictures docs/images`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from tests.dashboard.shop import make_shop, seed

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/nightly-backup",
    "timeline": "/timeline",
    "runs": "/runs?since=1d",
    "run": "/runs/{failed}",
    "queues": "/queues",
    "errors": "/errors",
    "tasks": "/tasks",
    "nodes": "/nodes",
    "system": "/system",
}


def main(folder: Path) -> None:
    """Write a picture of each page, light and dark, and of the overview on a phone."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        app = make_shop(f"sqlite:///{place}/shop.db")
        seed(app)
        failed = app.find(status="failed", job="reconcile-stripe", limit=1)[0].id
        server = DashboardServer(DashboardApp(app, env="production"), port=0)
        server.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            for theme in ("light", "dark"):
                scheme = "light" if theme == "light" else "dark"
                wide = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
                for name, path in PAGES.items():
                    wide.goto(server.url.rstrip("/") + path.format(failed=failed))
                    wide.wait_for_timeout(800)
                    wide.screenshot(path=folder / f"dashboard-{name}-{theme}.png")
                phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
                phone.goto(server.url)
                phone.wait_for_timeout(800)
                phone.screenshot(path=folder / f"dashboard-phone-{theme}.png")
            browser.close()
        server.stop()
        app.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
