"""The pages of flows, and how a graph is laid out."""

from __future__ import annotations

from pathlib import Path

from mainspring import Mainspring
from mainspring.app.insight.doctor import diagnose
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.looks.graph import GraphNode, draw, layers_of
from tests.dashboard.client import Client

EVIL = "<img src=x onerror=alert(1)>"
LIMIT = 90.0


def node(name: str, *after: str, kind: str = "waiting") -> GraphNode:
    return GraphNode(name, kind, name, "", "", "", after)


def make(folder: Path) -> Mainspring:
    app = Mainspring(f"sqlite:///{folder}/jobs.db", secret_key="k" * 32, timezone="UTC")

    @app.task(name="shop:step")
    def step(text: str, token: str = "") -> str:
        if text == "bad":
            raise ValueError("no")
        return text

    return app


def test_a_flow_is_listed_drawn_and_told(tmp_path: Path) -> None:
    app = make(tmp_path)
    step = app.as_task("shop:step")
    first, *_ = app.chain([step.call("one"), step.call(EVIL, token="canary"), step.call("three")])
    client = Client(DashboardApp(app))
    listed = client.get("/flows")
    assert listed.status == 200
    assert "0 of 3" in listed.words
    shown = client.get(f"/flows/{first.id}")
    assert "Waits for 3 of 3 steps: step waits." in shown.words
    assert (shown.text.count('class="n waiting"'), shown.text.count('class="n blocked"')) == (1, 2)
    assert shown.text.count("<path class") >= 2
    assert EVIL not in shown.text
    assert "canary" not in shown.text
    assert f'href="/flows/{first.id}"' in client.get(f"/runs/{first.id}").text
    app.close()


def test_a_failed_flow_offers_to_retry_what_failed(tmp_path: Path) -> None:
    app = make(tmp_path)
    step = app.as_task("shop:step")
    first, *_ = app.chain([step.call("bad"), step.call("two")])
    app.start(work=True)
    app.wait([first, *_], LIMIT)
    shown = Client(DashboardApp(app)).get(f"/flows/{first.id}")
    assert "Failed: 1 step, step first. 1 step after it will not run unless it is retried." in shown.words
    assert "Retry what failed" in shown.words
    assert "Cancel the rest" not in shown.words
    app.close()


def test_many_equal_steps_are_drawn_as_one(tmp_path: Path) -> None:
    app = make(tmp_path)
    step = app.as_task("shop:step")
    handle = app.gather([step.call(str(number)) for number in range(40)])
    shown = Client(DashboardApp(app)).get(f"/flows/{handle.id}")
    assert "step \u00d7 40" in shown.words
    assert shown.text.count('<g class="n') == 2
    app.close()


def test_an_unknown_flow_is_not_found(tmp_path: Path) -> None:
    app = make(tmp_path)
    assert Client(DashboardApp(app)).get("/flows/nobody").status == 404
    app.close()


def test_a_node_stands_after_all_that_come_before_it() -> None:
    nodes = [node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"), node("e", "a", "d")]
    assert [sorted(layer) for layer in layers_of(nodes)] == [["a"], ["b", "c"], ["d"], ["e"]]


def test_lines_that_need_not_cross_do_not() -> None:
    nodes = [node("a"), node("b"), node("x", "b"), node("y", "a")]
    first, second = layers_of(nodes)
    ends = {"x": "b", "y": "a"}
    assert [ends[each] for each in second] == first


def test_a_graph_of_nothing_is_drawn() -> None:
    assert "<svg" in draw([], "nothing")


def test_a_flow_that_waits_for_a_signal_is_no_problem_for_the_doctor(tmp_path: Path) -> None:
    app = make(tmp_path)
    with app.flow("import 7") as flow:
        flow.add(app.as_task("shop:step").call("one"), after=flow.signal("approved"))
    assert not [each for each in diagnose(app).findings if "mainspring:signal" in each.text]
    client = Client(DashboardApp(app))
    assert "waits for its signal" in client.get("/runs").words
    assert "waits for its signal" in client.get("/flows/import%207").words
    app.close()
