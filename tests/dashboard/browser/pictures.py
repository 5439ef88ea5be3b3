"""Take the pictures of the documentation: `python -m tests.dashboard.browser.pictures docs/images`.

With the Inter font installed (Debian: fonts-inter) they look as on most people's screens; pngquant makes them small.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from tests.dashboard.shop import make_shop, seed, seed_flow

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/nightly-backup",
    "job-new": "/jobs/new?task=shop.ops:backup&kind=cron&when=30+2+*+*+mon-fri",
    "timeline": "/timeline",
    "flow": "/flows/import%207",
    "runs": "/runs?since=1d",
    "run": "/runs/{failed}",
    "run-new": "/runs/new?again={failed}",
    "queues": "/queues",
    "queue": "/queues/media",
    "errors": "/errors?order=most",
    "tasks": "/tasks",
    "task": "/tasks/shop.payments:capture",
    "nodes": "/nodes",
    "node": "/nodes/fsn-app-1:2101:aaaa",
    "system": "/system",
}
PHONE = {"phone": "/", "phone-jobs": "/jobs", "phone-run": "/runs/{failed}"}


def take(browser: Browser, address: str, theme: Literal["light", "dark"], failed: str, folder: Path) -> None:
    """Write the pictures of one theme."""
    for pages, width, height, scale in ((PAGES, 1280, 800, 1.5), (PHONE, 390, 844, 2)):
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=scale
        )
        for name, path in pages.items():
            page.goto(address + path.format(failed=failed))
            page.wait_for_timeout(800)
            page.screenshot(path=folder / f"dashboard-{name}-{theme}.png")
        page.close()


def main(folder: Path) -> None:
    """Write a picture of each page, light and dark, and of some on a phone."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        app = make_shop(f"sqlite:///{place}/shop.db")
        seed(app)
        seed_flow(app)
        failed = app.find(status="failed", job="reconcile-stripe", limit=1)[0].id
        server = DashboardServer(DashboardApp(app, env="production"), port=0)
        server.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            take(browser, server.url.rstrip("/"), "light", failed, folder)
            take(browser, server.url.rstrip("/"), "dark", failed, folder)
            browser.close()
        server.stop()
        app.close()
    smaller = shutil.which("pngquant")
    if smaller is not None:
        pictures = sorted(folder.glob("dashboard-*.png"))
        subprocess.run(
            [smaller, "--force", "--ext", ".png", "--speed", "1", "--quality", "70-95", *pictures], check=False
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
