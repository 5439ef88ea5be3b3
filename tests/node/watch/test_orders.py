"""Which orders a node follows: new ones under its name, each once, however they came in."""

from __future__ import annotations

import os
from typing import Any

from mainspring.core.insight.acts import Act, act_id
from mainspring.core.instants import SECOND
from mainspring.node.watch.orders import OrderWatch
from tests.node.bench import Bench


class Sentinel:
    """Watches a node, and notes that it is to stop."""

    steady_since: float | None = None
    runs_left: int | None = None
    stopped = 0

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at

    def claiming(self, *_: Any) -> None: ...

    def claimed(self, *_: Any) -> None: ...

    def ended(self, *_: Any) -> None: ...

    def stop_all(self) -> None:
        self.stopped += 1


def order(bench: Bench, verb: str, after: float = 0.0, target: str | None = None) -> None:
    at = bench.link.now() + int(after * SECOND)
    name = bench.node.order_name if target is None else target
    bench.link.store.acts([Act(id=act_id(at, verb), at=at, verb=verb, kind="node", target=name, by="ann")])


def test_each_order_is_followed_once_in_the_order_they_were_given(bench: Bench) -> None:
    node, watch = bench.node, OrderWatch(bench.link)
    order(bench, "quiet_node", 1)
    watch()
    assert (node.quiet, node.firing, bench.link.claiming) == (True, False, False)
    node.be_quiet(False)
    watch()
    assert not node.quiet
    order(bench, "resume_node", 2)
    order(bench, "quiet_node", 3)
    watch()
    assert node.quiet


def test_an_order_to_a_sentinel_stops_all_and_one_to_the_former_sentinel_of_that_number_does_not(bench: Bench) -> None:
    node = bench.node
    node.watcher = sentinel = Sentinel(node.clock.monotonic())
    assert node.order_name == f"{node.host}:{os.getppid()}"
    watch = OrderWatch(bench.link)
    order(bench, "stop_node", -60)
    watch()
    assert sentinel.stopped == 0
    order(bench, "stop_node", 1)
    watch()
    assert sentinel.stopped == 1


def test_an_order_to_somebody_else_or_of_an_unknown_kind_is_not_followed(bench: Bench) -> None:
    node, watch = bench.node, OrderWatch(bench.link)
    order(bench, "quiet_node", 1, "other:1")
    order(bench, "?", 2)
    watch()
    assert not node.quiet
