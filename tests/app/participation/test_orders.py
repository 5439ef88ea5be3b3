"""Orders to nodes: be quiet, go on, stop. Whoever gives one needs only the store."""

from __future__ import annotations

import os
import threading
from itertools import count

import pytest

from mainspring import Mainspring
from mainspring.core.insight.acts import Act, act_id
from mainspring.errors import NodeNotFound
from mainspring.schedulers.background import BackgroundScheduler
from tests.app.kit import EVERYWHERE, KEY, LIMIT, MakeApp
from tests.waiting import until

_names = count(1)
LEASE = 3.0


def states(app: Mainspring) -> list[str]:
    return [node.state for node in app.nodes()]


def double(number: int) -> int:
    return number * 2


@EVERYWHERE
def test_a_node_follows_orders_that_are_only_in_its_store(url: str, make_app: MakeApp) -> None:
    name = f"orders{next(_names)}"
    app = make_app(url, name=name, secret_key=KEY, lease=LEASE)
    other = app if url == "memory://" else make_app(url, name=name, secret_key=KEY, lease=LEASE)
    task = app.task(double)
    app.start(work=True, threads=1)
    assert app.node is not None
    node = app.node
    until(lambda: states(other) == ["running"], "it has not begun")
    shown = f"{node.host}:{os.getpid()}"

    with other.acting("ann", "deploy"):
        assert other.quiet_node(shown) == [node.id]
    until(lambda: states(other) == ["paused"], "it is not quiet")
    assert other.explain(f"node:{node.id}").sentence.startswith("Paused by ann, ")
    handle = task.enqueue(4)
    waits = f"Waits: {shown}, the only node that serves "
    until(lambda: other.explain(handle.id).sentence.startswith(waits), "it does not say why it waits")
    assert not node.firing

    other.resume_node(node.id)
    assert handle.result(LIMIT) == 8
    until(lambda: states(other) == ["running"], "it has not gone on")

    other.stop_node(node.id)
    until(lambda: not app.running, "it has not stopped")
    if other is not app:
        until(lambda: not other.nodes(), "it has not left")
        assert [entry.verb for entry in other.audit(kind="node", target=node.id)] == [
            "stop_node",
            "resume_node",
            "quiet_node",
        ]
    with pytest.raises(NodeNotFound, match="no living node is called 'nobody:1'"):
        other.stop_node("nobody:1")


def test_an_order_that_cannot_be_stored_is_an_error(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app()
    app.start()
    assert app.node is not None
    until(lambda: states(app) == ["running"], "it has not begun")

    def refuse(*_: object, **__: object) -> list[Act]:
        raise OSError("the store is away")

    monkeypatch.setattr(app.store, "acts", refuse)
    with pytest.raises(OSError, match="the store is away"):
        app.quiet_node(app.node.id)


def test_a_scheduler_stops_when_it_is_told_to() -> None:
    scheduler = BackgroundScheduler(timezone="UTC", lease=LEASE)
    scheduler.start()
    node = scheduler._node
    assert node is not None
    store, now = node.links["default"].store, node.links["default"].now()
    store.acts([Act(id=act_id(now + 1), at=now + 1, verb="stop_node", kind="node", target=node.id, by="ann")])
    until(lambda: not scheduler.running, "it has not stopped")


def test_an_app_in_the_foreground_ends_when_it_is_told_to_stop(make_app: MakeApp) -> None:
    app: Mainspring = make_app(lease=LEASE)

    def order() -> None:
        until(lambda: app.node is not None and app.nodes(), "it has not started")
        assert app.node is not None
        app.stop_node(app.node.id)

    teller = threading.Thread(target=order)
    teller.start()
    app.run()
    teller.join()
    assert not app.running
