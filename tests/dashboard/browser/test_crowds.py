"""Too much and too long: hundreds of jobs, names of two hundred letters, names that run from right to left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.run import Call, Error, Run, Status
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from mainspring.jobstores.values import NodeInfo, NodeRun
from tests.dashboard.browser.conftest import LIMIT
from tests.dashboard.browser.test_looks import sticking_out
from tests.dashboard.shop import KEY

LONG = "averylongname" * 15
NAMES = (LONG, "x" * 120, "تقرير-المبيعات-اليومي", "🚀-launch-day", "a b c d e f g " * 8 + "h")
MOST_NODES = 2500
MINUTE = 60 * SECOND
PLACES = (
    "/",
    "/jobs",
    "/runs",
    "/timeline",
    "/timeline?by=queue",
    "/flows",
    "/queues",
    "/errors",
    "/tasks",
    "/nodes",
    "/system",
)
NAME = quote(LONG, safe="")
THINGS = (
    *(f"/jobs/{NAME}", f"/jobs/{NAME}/edit", f"/queues/{NAME}", f"/queues/{NAME}/purge", f"/tasks/{NAME}"),
    *("/runs/odd0", "/runs/new?again=odd0", f"/nodes/{NAME}:1:a", "/search?q=a", "/system/audit"),
)


def _nothing() -> Callable[..., None]:
    def task(*args: object, **kwargs: object) -> None: ...

    return task


def _odd(url: str) -> Mainspring:
    """Make a store in which every name is hard to show."""
    app = Mainspring(url, name="متجر", secret_key=KEY, timezone="Europe/Berlin", queues=["default"])
    for name in NAMES:
        app.schedule("*/10 * * * *", id=name)(app.task(name=name, queue=name)(_nothing()))
    app.reconcile()
    now = app.now()
    runs = [_odd_run(number, name, now) for number, name in enumerate(NAMES)]
    app.store.add_runs([app.store.pack_run(run) for run in runs])
    for number, name in enumerate(NAMES):
        node = NodeInfo(
            id=f"{name}:1:a", host=name, pid=1, started_at=now, queues=NAMES, cluster=f"{name}:0", code=name,
            slots=80, busy=1, runs=(NodeRun(f"odd{number}", now),),
        )  # fmt: skip
        app.store.beat(node, ttl=3600)
    app.mark(LONG)
    return app


def _odd_run(number: int, name: str, now: int) -> Run:
    error = Error(f"pkg.{name}", f"{name} failed", f'  File "/app/{name}.py", line 5, in {name}\n    x()\n', now, 1)
    return Run(
        id=f"odd{number}",
        call=Call(name, (), {"name": name, "path": "/d" * 90}, name),
        queue=name,
        status=Status.FAILED,
        attempt=1,
        failures=1,
        errors=(error,),
        created_at=now - MINUTE,
        run_at=now - MINUTE,
        started_at=now - MINUTE + SECOND,
        finished_at=now - 2 * SECOND,
        node=f"{name}:1:a",
    )


def _empty(url: str) -> Mainspring:
    """Make a store that holds nothing."""
    return Mainspring(url, name="empty", secret_key=KEY)


def _crowd(url: str) -> Mainspring:
    """Make a store with more of everything than a page can hold."""
    app = Mainspring(url, name="warehouse", secret_key=KEY, timezone="Europe/Berlin")
    for number in range(300):
        task = app.task(name=f"warehouse.team{number % 17}:task_{number}", queue=f"queue-{number % 60:02}")(_nothing())
        app.schedule(f"*/{number % 4 * 5 + 5} * * * *", id=f"job-{number:03}")(task)
    app.reconcile()
    now = app.now()
    runs = [
        Run(
            id=f"run{number:04}",
            call=Call(f"warehouse.team{number % 17}:task_{number % 300}", (), {}, "task"),
            queue=f"queue-{number % 60:02}",
            job_id=f"job-{number % 300:03}",
            status=Status.SUCCEEDED if number % 3 else Status.PENDING,
            created_at=now - number * SECOND,
            run_at=now - number * SECOND,
            started_at=now - number * SECOND if number % 3 else None,
            finished_at=now if number % 3 else None,
        )
        for number in range(1500)
    ]
    for start in range(0, len(runs), 500):
        app.store.add_runs([app.store.pack_run(run) for run in runs[start : start + 500]])
    for number in range(40):
        queues = tuple(f"queue-{each:02}" for each in range(60))
        node = NodeInfo(
            id=f"host-{number // 4:02}:{number}:a", host=f"host-{number // 4:02}", pid=number, started_at=now,
            queues=queues, cluster=f"host-{number // 4:02}:9", slots=64 if number % 5 == 0 else 8, busy=number % 9,
        )  # fmt: skip
        app.store.beat(node, ttl=3600)
    return app


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Where the dashboards of these stores are; each is made when it is first asked for, and once."""
    found: dict[str, str] = {}
    with ExitStack() as stack:

        def address_of(kind: str) -> str:
            if kind not in found:
                url = f"sqlite:///{tmp_path_factory.mktemp(kind)}/store.db"
                made = {"odd": _odd, "crowd": _crowd, "empty": _empty}[kind](url)
                stack.callback(made.close)
                server = DashboardServer(DashboardApp(made, env="a-very-long-environment"), port=0)
                server.start()
                stack.callback(server.stop)
                found[kind] = server.url.rstrip("/")
            return found[kind]

        yield address_of


@pytest.fixture
def address(addresses: Callable[[str], str], kind: str) -> str:
    """Where the dashboard of one of them is."""
    return addresses(kind)


@pytest.fixture
def context(chromium: Browser, address: str) -> Iterator[BrowserContext]:
    """A fresh visitor."""
    context = chromium.new_context(base_url=address)
    context.set_default_timeout(LIMIT)
    yield context
    context.close()


def _wrong(page: Page, path: str) -> list[str]:
    """Return what is wrong with a page: too many nodes, or something that makes it scroll sideways."""
    answer = page.goto(path)
    assert answer is not None
    assert answer.status == 200, path
    nodes = page.evaluate("document.querySelectorAll('*').length")
    wrong = [f"{nodes} nodes"] if nodes > MOST_NODES else []
    for width in (1440, 1000, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"scrolls sideways at {width}: {sticking_out(page)}")
    return wrong


CASES = [
    *((kind, path) for kind in ("odd", "empty", "crowd") for path in PLACES),
    *(("odd", path) for path in THINGS),
]


@pytest.mark.parametrize(("kind", "path"), sorted(CASES))
def test_a_page_holds_what_there_is(kind: str, path: str, context: BrowserContext) -> None:
    assert not _wrong(context.new_page(), path)
