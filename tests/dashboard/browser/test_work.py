"""Runs and what concerns them, in a real browser: hostile words, choosing, acting on many, a phone."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect

from mainspring.core.run import Call, Run, Status
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from mainspring.jobstores.values import NodeInfo
from tests.dashboard.browser.conftest import LIMIT, watched
from tests.dashboard.story import EVIL, Story, make_story


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A small shop at work, with hostile words in every text."""
    with make_story(tmp_path_factory.mktemp("story")) as told:
        yield told


@pytest.fixture(scope="module")
def address(story: Story) -> Iterator[str]:
    """Where its dashboard is."""
    server = DashboardServer(DashboardApp(story.app), port=0)
    server.start()
    yield server.url.rstrip("/")
    server.stop()


def test_check_11_hostile_words_are_shown_as_text_everywhere(
    context: BrowserContext, complaints: list[str], story: Story
) -> None:
    page, dialogs = watched(context.new_page(), complaints), list[str]()

    def refuse(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    _add_hostile_names(story)
    key = story.app.errors().groups[0].key
    task, queue, text = (quote(each, safe="") for each in (f"evil:{EVIL}", EVIL_QUEUE, EVIL))
    saying = {
        f"/runs/{story.failed}": EVIL,  # its error, its data, its log
        f"/runs/{story.evil_run}": EVIL,  # its name, its argument, its result, its group
        f"/runs/{story.cancelled}": EVIL,  # by whom, and why
        f"/errors/{key}": EVIL,
        f"/tasks/{task}": EVIL,
        f"/jobs/{text}": EVIL[:20],
        f"/queues/{queue}": EVIL_QUEUE,
        f"/nodes/{quote(EVIL_NODE, safe='')}": EVIL_QUEUE,
        "/nodes": EVIL_QUEUE[:20],
        "/queues": EVIL_QUEUE[:20],
        "/jobs": EVIL[:20],
        "/system/audit": EVIL[:20],
    }
    others = (
        *(
            "/",
            "/runs",
            "/tasks",
            f"/runs/new?task={task}",
            f"/runs/new?again={story.evil_run}",
            "/system",
            "/timeline",
        ),
        *(
            "/timeline",
            "/timeline?by=queue",
            f"/runs?q={text}",
            f"/errors?q={text}",
            f"/runs?task={task}",
            f"/queues?q={text}",
        ),
        *(f"/search?q={text}", f"/jobs/{text}/edit", f"/queues/{queue}/purge", f"/runs?group={text}"),
    )
    for path in (*saying, *others):
        page.goto(path)
        assert page.locator("img, main script, main [onerror]").count() == 0, path
        assert "49" not in page.title(), path
        if path in saying:
            assert saying[path] in page.locator("main").inner_text(), path
    assert not dialogs
    assert not [each for each in complaints if "400" not in each and "404" not in each]


EVIL_QUEUE = "<img src=x onerror=alert(3)>'\"</script>"
EVIL_NODE = f"{EVIL}:1:a"


def _add_hostile_names(story: Story) -> None:
    """Let a job, a queue and a node have hostile names, too."""
    app = story.app
    now = app.now()
    app.add_job("shop.exports:export", "cron", month=1, day=1, hour=3, id=EVIL, args=["2026-10"])
    run = Run(
        id="evil-queue",
        call=Call("shop.exports:export", ("x",), {}, EVIL),
        queue=EVIL_QUEUE,
        created_at=now,
        run_at=now,
    )
    app.store.add_runs([app.store.pack_run(run)])
    node = NodeInfo(
        id=EVIL_NODE, host=EVIL, pid=1, started_at=now, queues=(EVIL_QUEUE,), missing=(EVIL,), code=EVIL, cluster=EVIL,
        version=EVIL, slots=1,
    )  # fmt: skip
    app.store.beat(node, ttl=3600)


def test_a_condition_is_typed_suggested_and_dropped(page: Page, story: Story) -> None:
    page.goto("/runs")
    field = page.locator("#q")
    field.fill("status:fai")
    expect(page.locator('#words option[value="status:failed"]')).to_have_count(1)
    field.fill("status:failed")
    field.press("Enter")
    page.wait_for_url("**/runs?*")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator(".tok")).to_contain_text("failed")
    page.locator(".tok a").click()
    expect(page.locator("tbody tr")).to_have_count(story.app.count())


def test_runs_are_chosen_counted_and_cancelled_together(page: Page, story: Story) -> None:
    made = [story.export.enqueue(f"2024-{month:02}").id for month in (1, 2, 3)]
    page.goto("/runs?queue=exports&status=waiting")
    expect(page.locator(".bulk")).to_be_hidden()
    for run in made:
        page.locator(f'tr[data-key="{run}"] input[type=checkbox]').check()
    expect(page.locator("[data-chosen]")).to_have_text("3 selected")
    page.locator(".bulk button", has_text="Cancel").click()
    expect(page.locator("#dialog")).to_contain_text("3 runs can be cancelled.")
    page.locator("input[name=why]").fill("a wrong month")
    page.locator("#dialog form.ask .row button").click()
    expect(page.locator(".toast")).to_contain_text("3 runs cancelled", timeout=LIMIT)
    assert {story.app.get(run).status for run in made} == {Status.CANCELLED}
    assert story.app.audit(kind="run", target=made[0])[0].why == "a wrong month"


def test_all_that_match_are_changed_and_the_progress_is_shown(page: Page, story: Story) -> None:
    story.app.enqueue_many(story.export.call(f"bulk {number}") for number in range(120))
    page.goto("/runs?queue=exports&status=waiting&text=bulk")
    page.locator("tbody input[type=checkbox]").first.check()
    page.locator("[data-all]").check()
    page.locator(".bulk button", has_text="Cancel").click()
    expect(page.locator("#dialog")).to_contain_text("120 runs can be cancelled.")
    page.locator("#dialog form.ask .row button").click()
    page.wait_for_url("**/bulk/*")
    expect(page.locator("main")).to_contain_text("120 cancelled; that was all.", timeout=LIMIT)


def test_a_run_that_ends_elsewhere_shows_it_by_itself(page: Page, story: Story) -> None:
    waiting = story.export.enqueue("live").id
    page.goto(f"/runs/{waiting}")
    expect(page.locator("h1")).to_contain_text("export")
    story.app.cancel(waiting)
    expect(page.locator(".sub b")).to_have_text("cancelled", timeout=LIMIT)


def test_check_12_a_failed_run_is_sent_back_from_a_phone_in_two_taps(
    chromium: Browser, address: str, story: Story
) -> None:
    run = story.reconcile.enqueue("phone").id
    story.app.wait([run], LIMIT / 1000)
    context = chromium.new_context(base_url=address, viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto("/runs?status=failed")
    page.locator(f'tr[data-key="{run}"] a.name').tap()
    page.locator(".head-tools [data-key=r]").tap()
    expect(page.locator(".toast")).to_contain_text("was sent back", timeout=LIMIT)
    assert story.app.get(run).retried == 1
    context.close()


def test_a_task_is_enqueued_and_its_run_is_shown(page: Page, story: Story) -> None:
    page.goto("/runs/new?task=shop.payments:capture")
    page.locator('[name="arg.order"]').fill("104233")
    page.locator("form.ask .row button").click()
    page.wait_for_url("**/runs/*")
    expect(page.locator("h1")).to_have_text("capture")
    expect(page.locator("main")).to_contain_text("order = 104233")


def test_new_runs_wait_behind_a_button_while_the_pointer_is_near(page: Page, story: Story) -> None:
    page.goto("/runs?queue=exports")
    expect(page.locator("tbody tr").first).to_be_visible()
    move = "document.dispatchEvent(new Event('pointermove'))"
    page.evaluate(f"{move}; window.moving = setInterval(() => {move}, 200)")
    new = story.export.enqueue("newer").id
    expect(page.locator(".newer")).to_contain_text("1", timeout=LIMIT)
    assert page.locator(f'tr[data-key="{new}"]').count() == 0
    page.evaluate("clearInterval(window.moving)")
    page.keyboard.press("n")
    expect(page.locator(f'tr[data-key="{new}"]')).to_be_visible(timeout=LIMIT)


def test_a_chosen_row_stays_chosen_while_the_table_changes(page: Page, story: Story) -> None:
    kept, other = story.export.enqueue("kept").id, story.export.enqueue("other").id
    page.goto("/runs?queue=exports")
    box = page.locator(f'tr[data-key="{kept}"] input[type=checkbox]')
    box.check()
    story.app.cancel(other)
    expect(page.locator(f'tr[data-key="{other}"]')).to_contain_text("cancelled", timeout=LIMIT)
    expect(box).to_be_checked()
    expect(page.locator("[data-chosen]")).to_have_text("1 selected")
