"""Check 3: every run is explained, in whatever state somebody finds it. tests/app/insight has a test per sentence."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Error, Run, Start, Status
from tests.dashboard.acceptance.conftest import served

STATES = 1000
BLOCKED = 50
REASONS = (None, "max_instances", "late by 300 s", "catch_up", "superseded", "purged", "unknown_key: k2", "")
HOWS = ("raised", "lost", "retry", "interrupted", "crashed", "sent back")


def _run(number: int, chance: random.Random, now: int) -> Run:
    """Make a run in a state that nobody has thought of."""
    status = chance.choice([each for each in Status if each is not Status.BLOCKED])
    made = now - chance.randrange(0, 10 * 86_400) * SECOND
    started = made + chance.randrange(0, 3600) * SECOND if chance.random() < 0.7 else None
    ended = (started or made) + chance.randrange(0, 7200) * SECOND
    final = status not in (Status.PENDING, Status.RUNNING, Status.BLOCKED)
    at = chance.choice((made, now + chance.randrange(1, 90_000) * SECOND))
    errors = tuple(Error("E", chance.choice(("no", "", "x" * 300)), "", made, n) for n in range(chance.randrange(3)))
    starts = tuple(
        Start(n + 1, chance.choice(("host:1:a", "")), made, made, made + SECOND, chance.choice(HOWS), at)
        for n in range(chance.randrange(3))
    )
    return Run(
        id=f"state{number:04}", call=Call("shop:task", (), {}, chance.choice(("", "task"))), status=status,
        queue=chance.choice(("default", "paused", "nobody", "limited")), policy=Policy(retries=chance.randrange(4)),
        priority=chance.randrange(-5, 5), attempt=chance.randrange(6), failures=chance.randrange(4),
        interruptions=chance.randrange(3), crashes=chance.randrange(4), created_at=made, run_at=at,
        fire_time=chance.choice((None, made)), started_at=started, finished_at=ended if final else None,
        node=chance.choice((None, "host:1:a", "gone:2:b")),
        token="t" if status is Status.RUNNING else None,
        lease_until=now + chance.randrange(-60, 60) * SECOND if status is Status.RUNNING else None,
        cancelling=status is Status.RUNNING and chance.random() < 0.3, errors=errors, reason=chance.choice(REASONS),
        count=chance.choice((1, 7)), retried=chance.randrange(2), earlier_starts=starts,
        progress=chance.choice((None, 0.4, {"done": 1, "total": 0}, "half")),
    )  # fmt: skip


@pytest.fixture(scope="module")
def app() -> Iterator[Mainspring]:
    """A store with a thousand random states."""
    chance = random.Random(11)
    app = Mainspring("memory://", timezone="UTC", queues=["nobody"])
    now = app.now()
    runs = [_run(number, chance, now) for number in range(STATES)]
    for start in range(0, STATES, 500):
        app.store.add_runs(runs[start : start + 500])
    app.pause_queue("paused")
    app.limit_queue("limited", 1)
    task = app.task(name="shop:later")(lambda: None)
    waiting = [run.id for run in runs if run.status in (Status.PENDING, Status.RUNNING)]
    for _ in range(BLOCKED):
        task.options(after=chance.sample(waiting, chance.randrange(1, 4)), on="end").enqueue()
    yield app
    app.close()


@pytest.fixture(scope="module")
def address(app: Mainspring) -> Iterator[str]:
    """Where its dashboard is."""
    with served(app) as found:
        yield found


def test_check_3_a_thousand_random_states_are_explained(page: Page, app: Mainspring) -> None:
    by_state: dict[tuple[str, str], str] = {}
    runs = app.find(limit=STATES + BLOCKED)
    assert len(runs) == STATES + BLOCKED
    for run in runs:
        told = app.explain(run)
        assert told.sentence.strip().endswith((".", "…")), (run.id, told)
        assert "None" not in told.sentence, (run.id, told.sentence)
        by_state.setdefault((str(run.status), told.state), run.id)
    assert {status for status, _ in by_state} == {str(status) for status in Status}
    for run_id in by_state.values():
        answer = page.goto(f"/runs/{run_id}")
        assert answer is not None
        assert answer.status == 200, run_id
        expect(page.locator(".explain p").first).not_to_be_empty()
        assert "could not be shown" not in page.content(), run_id
