"""A phone, and a page with too much on it: what opens, what a finger meets, what names still say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.run import Call, Error, Run, Start, Status
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.serving import DashboardServer
from mainspring.jobstores.values import NodeInfo
from tests.dashboard.browser.test_looks import sticking_out
from tests.dashboard.shop import KEY

PHONE: ViewportSize = {"width": 390, "height": 844}
FINGER = 38


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the dashboard of a store is whose names differ at their ends, with many processes, queues and log lines."""
    app = Mainspring(
        f"sqlite:///{tmp_path_factory.mktemp('crowd')}/store.db", name="warehouse", secret_key=KEY, timezone="UTC"
    )
    for number in range(40):
        task = app.task(name=f"warehouse:recompute_{number}")(lambda: None)
        app.schedule("15 */3 * * *", id=f"recompute-the-stock-levels-{number:03}")(task)
    load = app.task(name="warehouse:load")(lambda part=0: None)
    app.reconcile()
    now = app.now()
    log = tuple(f"2026-11-18 07:00:{n % 60:02}.000 INFO warehouse: page {n}" for n in range(1000))
    earlier = tuple(
        Start(n, "host-00:0:a", now - 61 * SECOND, now - 61 * SECOND, now, "raised", now) for n in range(1, 20)
    )
    errors = tuple(Error("TimeoutError", f"no answer on start {n}", "", now, n) for n in range(1, 21))
    runs = [
        Run(
            id="long", call=Call("warehouse:load", (), {}, "load"), status=Status.FAILED, attempt=20, log=log,
            errors=errors, earlier_starts=earlier, failures=20,
            created_at=now - 60 * SECOND, run_at=now - 60 * SECOND, started_at=now - 50 * SECOND, finished_at=now,
            node="host-00:0:a",
        ),
        *(
            Run(
                id=f"run{n:04}", call=Call("warehouse:load", (), {}, "load"), status=Status.SUCCEEDED, attempt=1,
                queue=f"the-orders-of-customer-{n % 30:04}", created_at=now - n * SECOND, run_at=now - n * SECOND,
                started_at=now - n * SECOND, finished_at=now, node="host-00:0:a",
            )
            for n in range(1200)
        ),
        *(
            Run(
                id=f"waits{n}", call=Call("warehouse:load", (), {}, "load"), queue=f"the-orders-of-customer-{n:04}",
                created_at=now - n * SECOND, run_at=now - n * SECOND,
            )
            for n in range(30)
        ),
    ]  # fmt: skip
    for begin in range(0, len(runs), 500):
        app.store.add_runs([app.store.pack_run(run) for run in runs[begin : begin + 500]])
    for n in range(110):
        node = NodeInfo(
            id=f"host-{n // 5:02}:{n % 5}:a", host=f"host-{n // 5:02}", pid=n, started_at=now,
            queues=tuple(f"queue-{each:03}" for each in range(100)), cluster=f"host-{n // 5:02}:9", slots=8,
        )  # fmt: skip
        app.store.beat(node, ttl=86_400)
    with app.flow("etl") as flow:
        first = flow.add(load.call())
        parts = [flow.add(load.call(part=n), after=first) for n in range(200)]
        flow.add(load.call(), after=parts)
    server = DashboardServer(DashboardApp(app, env="production"), port=0)
    server.start()
    yield server.url.rstrip("/")
    server.stop()
    app.close()


def _words(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


# -- the timeline ----------------------------------------------------------------------------------------------------


def test_the_timeline_opens_on_a_phone_at_an_hour_back_and_five_ahead(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/timeline")
    page.wait_for_url("**/timeline?range=6h")
    page.locator(".seg a", has_text="+18 h").click()
    page.wait_for_url("**/timeline?range=24h")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/timeline")
    expect(page.locator(".seg a[aria-current]", has_text="+18 h")).to_be_visible()


def test_a_phone_without_scripts_gets_the_short_timeline_too(chromium: Browser, address: str) -> None:
    agent = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1"
    context = chromium.new_context(base_url=address, java_script_enabled=False, user_agent=agent)
    page = context.new_page()
    page.goto("/timeline")
    assert page.url.endswith("/timeline?range=6h")
    context.close()


def test_slots_that_were_busy_and_that_will_be_differ_and_a_legend_says_which(page: Page) -> None:
    page.goto("/timeline")
    fills = page.evaluate(
        """() => { const now = document.querySelector('.track.tall .now').getBoundingClientRect().x
          const sides = [new Set(), new Set()]
          for (const bar of document.querySelectorAll('.track.tall > svg rect[data-tip]:not(.h0)'))
            sides[bar.getBoundingClientRect().right > now + 1 ? 1 : 0].add(getComputedStyle(bar).fill)
          return sides.map(side => [...side]) }"""
    )
    was, will_be = map(set, fills)
    assert was
    assert will_be
    assert not was & will_be
    keys = page.evaluate(
        "() => [...document.querySelectorAll('.track.tall .key rect')].map(key => getComputedStyle(key).fill)"
    )
    assert _words(page, ".track.tall .legend > span") == ["were", "will be"]
    assert keys[0] in was
    assert keys[1] not in was


def test_a_timeline_of_too_many_runs_says_how_many_it_draws(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/timeline?by=queue")
    expect(page.locator(".pager")).to_contain_text("only the newest 1,000 runs are drawn: those made since")


def test_the_mark_of_a_queue_on_the_timeline_says_how_its_runs_ended(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/timeline?by=queue&range=6h")
    names = page.evaluate("() => [...document.querySelectorAll('.track[data-key]')].map(track => track.dataset.key)")
    assert names[0] == "default"  # trouble comes first
    assert _words(page, '.track[data-key="default"] > a > .sr') == ["failed"]
    assert _words(page, f'.track[data-key="{names[1]}"] > a > .sr') == ["succeeded"]


# -- names, counts and lists that are too long -----------------------------------------------------------------------


@pytest.mark.parametrize(("path", "selector"), [("/timeline", ".track > a"), ("/", ".fires .nm")])
def test_names_that_differ_at_their_ends_can_be_told_apart(path: str, selector: str, page: Page, crowd: str) -> None:
    page.goto(crowd + path)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        hidden = page.evaluate(
            """selector => [...document.querySelectorAll(selector)].filter(link => {
              const end = document.createRange(), words = link.querySelector('.ends')?.lastChild?.firstChild
              if (!words) return true
              end.selectNodeContents(words)
              return end.getBoundingClientRect().right > link.getBoundingClientRect().right + 1 }).length""",
            selector,
        )
        assert page.locator(selector).count() > 0
        assert hidden == 0, width


def test_a_tag_is_whole_beside_a_long_name(page: Page, crowd: str) -> None:
    page.goto(crowd)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        cut = page.evaluate(
            """() => [...document.querySelectorAll('.tab .name > .tag')]
              .filter(tag => tag.scrollWidth > tag.clientWidth + 1
              || tag.getBoundingClientRect().right > tag.closest('td').getBoundingClientRect().right).length"""
        )
        assert page.locator(".tab .name > .tag").count() > 0
        assert cut == 0, width


def test_folded_hosts_open_by_a_link(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/nodes")
    assert page.locator("section.cluster").first.bounding_box()["height"] < 60  # type: ignore[index]
    expect(page.locator("section.cluster").first).to_contain_text("queue-000 and 99 more")
    page.locator("section.cluster").nth(1).get_by_role("link", name="5 processes").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    assert _words(page, "section.cluster h2") == ["host-01"]


def test_a_node_names_some_of_the_queues_that_it_serves(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/nodes/host-01:1:a")
    expect(page.locator("main")).to_contain_text("and 88 more")
    assert page.evaluate("document.documentElement.scrollHeight") < 1500


def test_a_graph_whose_steps_are_folded_leaves_none_out(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/flows/etl")
    expect(page.locator("svg.flow")).to_contain_text("\u00d7 200")
    expect(page.locator("main")).not_to_contain_text("in the table only")


def test_a_list_of_flows_names_them_and_says_that_none_runs_yet(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/flows")
    expect(page.locator("tbody a.name")).to_have_text("etl")
    expect(page.locator("tbody .st")).to_have_text("waiting")


def test_the_queues_say_how_many_more_are_unserved(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/queues")
    expect(page.locator(".explain")).to_contain_text("more are unserved")


def test_a_long_log_has_a_box_of_its_own_and_opens_at_its_end(page: Page, crowd: str) -> None:
    page.goto(f"{crowd}/runs/long")
    box = page.locator(".tail").bounding_box()
    assert box is not None
    assert box["height"] <= 500
    last = page.locator(".log li").last.bounding_box()
    assert last is not None
    assert last["y"] + last["height"] <= box["y"] + box["height"] + 12
    page.goto(f"{crowd}/runs/long?log=all")
    assert page.locator(".log li").count() == 1000


def test_a_log_follows_its_end_unless_somebody_reads_further_up(page: Page, crowd: str) -> None:
    nothing_else = re.compile(r"/live(/regions)?\?")
    page.route(nothing_else, lambda route: route.abort())
    page.goto(f"{crowd}/runs/long")
    seen = page.evaluate(
        """async () => {
          const { patchForTests } = await import(document.querySelector('script[type=module]').src)
          const region = document.querySelector('[data-live=log]'), box = document.querySelector('.tail')
          const more = (text) => {
            const log = new DOMParser().parseFromString(region.innerHTML, 'text/html')
            for (let n = 0; n < 40; n++) {
              const line = log.querySelector('.log li').cloneNode(true)
              line.lastElementChild.textContent = `${text} ${n}`
              log.querySelector('.log').append(line)
            }
            patchForTests('log', log.body.innerHTML, text)
          }
          const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
          const atEnd = () => box.getBoundingClientRect().bottom - document.querySelector('.log li:last-child')
            .getBoundingClientRect().bottom
          more('first')
          await frame()
          const end = atEnd()
          box.scrollTop = -300
          await frame()
          const middle = box.getBoundingClientRect().top + 100, x = box.getBoundingClientRect().left + 200
          const read = () => document.elementFromPoint(x, middle).closest('li').textContent
          const before = read()
          more('second')
          await frame()
          return [end, before, read()] }"""
    )
    assert abs(seen[0]) < 20
    assert seen[1] == seen[2]


# -- fingers ---------------------------------------------------------------------------------------------------------

REACH = """least => {
  const reach = node => {  // where a tap lands on it: what lies over a whole card counts
    const over = getComputedStyle(node, '::after')
    if (over.content === 'none' || over.position !== 'absolute') return node.getBoundingClientRect()
    let box = node
    while (getComputedStyle(box).position === 'static') box = box.parentElement
    return box.getBoundingClientRect()
  }
  const prose = node => getComputedStyle(node).display === 'inline' && node.closest('p, li, dd, small, footer')
  return [...document.querySelectorAll('main :is(a, button, summary), .bar :is(a, button), .tabs a')]
    .filter(node => node.checkVisibility({ opacityProperty: true }) && !node.closest('svg') && !prose(node))
    .map(node => [node, reach(node)])
    .filter(([node, box]) => box.width && Math.min(box.width, box.height) < least - .5)
    .map(([node, box]) => `${Math.round(box.width)} x ${Math.round(box.height)} ${node.outerHTML.slice(0, 120)}`) }"""


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/jobs/nightly-backup", "/runs", "/queues", "/queues/media", "/nodes", "/errors", "/tasks"]
)
def test_a_finger_meets_what_it_aims_at(path: str, page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto(path)
    assert not page.evaluate(REACH, FINGER)


def test_the_whole_card_of_a_run_opens_it_and_no_hidden_button_acts(page: Page, shop: Mainspring) -> None:
    failed = shop.find(status="failed", limit=1)[0].id
    page.set_viewport_size(PHONE)
    page.goto("/runs?status=failed")
    card = page.locator(f'tr[data-key="{failed}"]')
    made = card.locator("td.made").bounding_box()
    assert made is not None
    page.mouse.click(made["x"] + made["width"] - 8, made["y"] + made["height"] / 2)  # where keys lie on a wide screen
    page.wait_for_url(re.compile(r"/runs/[^?]+$"))


def test_the_environment_is_in_sight_on_a_phone(page: Page, crowd: str) -> None:
    page.set_viewport_size(PHONE)
    page.goto(crowd)
    assert page.evaluate(
        "() => { const badge = document.querySelector('.bar .env'); return badge.scrollWidth <= badge.clientWidth }"
    )


def test_a_group_of_errors_comes_before_the_list_it_was_chosen_from_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/errors")
    page.locator("a.eg").last.click()
    page.wait_for_url("**/errors/*")
    opened, listed = page.locator('[data-live="group"]').bounding_box(), page.locator(".egs").bounding_box()
    assert opened is not None
    assert listed is not None
    assert opened["y"] < listed["y"]


def test_what_ended_last_says_when(page: Page) -> None:
    for path in ("/queues/payments", "/nodes/fsn-app-2:988:bbbb"):
        page.goto(path)
        table = page.locator("table", has=page.locator("th", has_text="Ended"))
        expect(table.locator("tbody td:last-child time").first).to_be_visible()


def test_a_run_of_twenty_starts_fits_the_smallest_phone(page: Page, crowd: str) -> None:
    page.set_viewport_size({"width": 320, "height": 700})
    page.goto(f"{crowd}/runs/long")
    assert not sticking_out(page)


def test_the_words_above_the_day_ahead_do_not_meet_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/")
    met = page.evaluate(
        """() => { const boxes = [...document.querySelectorAll('[data-live=ahead] svg.chart text')]
            .filter(text => text.checkVisibility()).map(text => text.getBoundingClientRect())
          const meet = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
            && one.top < other.bottom - 1 && other.top < one.bottom - 1
          return boxes.some((one, at) => boxes.slice(at + 1).some(other => meet(one, other))) }"""
    )
    assert not met
