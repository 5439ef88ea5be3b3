"""Everybody can use it: axe finds nothing, colours may be forced, motion stops, charts can be walked by keys."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from mainspring import Mainspring
from tests.dashboard.browser.test_looks import PAGES, picture, violations


@pytest.mark.parametrize("name", ["overview", "jobs", "run"])
def test_check_10_axe_finds_nothing_in_the_dark(name: str, page: Page, shop: Mainspring) -> None:
    failed = shop.find(status="failed", job="reconcile-stripe", limit=1)[0].id
    page.emulate_media(color_scheme="dark")
    page.goto(PAGES[name].format(failed=failed))
    assert not violations(page)


def test_a_chart_is_walked_by_arrow_keys_and_read_as_a_table(page: Page) -> None:
    page.goto("/")
    page.locator("[data-live=throughput] svg.chart").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tip")).to_contain_text("succeeded")
    first = page.locator("#announce").text_content()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#announce")).not_to_have_text(first or "")
    page.locator("[data-live=throughput] .as-table a").click()
    expect(page.locator("[data-live=throughput] th").nth(1)).to_have_text("Succeeded")


def test_check_10_each_mark_has_a_shape_of_its_own(page: Page) -> None:
    page.goto("/")
    symbols = "[...document.querySelectorAll('symbol[id^=m-]')]"
    shapes = page.evaluate(f"Object.fromEntries({symbols}.map(each => [each.id, each.innerHTML]))")
    running = ("waiting", "delayed", "running", "retrying", "succeeded", "failed", "cancelled", "missed", "broken")
    states = [*running, "late", "paused", "new"]
    assert len({shapes[f"m-{state}"] for state in states}) == len(states)


def test_check_10_motion_stops_for_those_who_want_none(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto("/runs")
    moving = page.evaluate("document.getAnimations().filter(each => each.playState === 'running').length")
    assert moving == 0


def test_every_time_says_the_moment_in_full(page: Page) -> None:
    page.goto("/jobs")
    times = "[...document.querySelectorAll('main time')]"
    bare = page.evaluate(f"{times}.filter(each => !each.dateTime && !('clock' in each.dataset)).length")
    assert bare == 0


DRAWN = """async (names) => {
  const draw = (name) => new Promise((done) => {
    const body = document.getElementById(`m-${name}`).innerHTML.replaceAll('class="cut"', 'stroke="#fff"');
    const head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" width="32" height="32" color="#777">';
    const image = new Image();
    image.onload = () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 32, height: 32 });
      const pen = canvas.getContext("2d");
      pen.drawImage(image, 0, 0);
      done([...pen.getImageData(0, 0, 32, 32).data].filter((_, n) => n % 4 === 3));
    };
    image.src = "data:image/svg+xml," + encodeURIComponent(head + body + "</svg>");
  });
  const found = await Promise.all(names.map(draw));
  const apart = (one, two) => one.filter((value, n) => Math.abs(value - two[n]) > 100).length;
  const near = [];
  found.forEach((one, a) => found.slice(a + 1).forEach((two, b) => {
    if (apart(one, two) < 24) near.push(`${names[a]} and ${names[a + 1 + b]}`);
  }));
  return near;
}"""
MARKS = ("waiting", "delayed", "blocked", "running", "retrying", "succeeded", "failed", "cancelled", "missed", "broken")


def test_check_10_all_marks_differ_in_one_shade_of_grey(page: Page) -> None:
    page.goto("/")
    assert page.evaluate(DRAWN, [*MARKS, "late", "paused", "new"]) == []


def test_check_10_shapes_stay_when_colours_are_forced(page: Page) -> None:
    page.emulate_media(forced_colors="active")
    page.goto("/jobs")
    marks = page.locator("main svg.m:visible")
    grounds = marks.evaluate_all(
        "nodes => nodes.map(n => [getComputedStyle(n).color, n.getBoundingClientRect().width])"
    )
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert grounds
    assert all(colour != ground and width >= 10 for colour, width in grounds)
    picture(page, "jobs", "forced", 1440)
