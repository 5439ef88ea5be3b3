"""A cluster of worker processes follows orders from the store."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.kit import PATIENCE, Yard, wait_until


def test_all_workers_of_a_sentinel_are_quiet_and_stop_together(make_yard: Callable[..., Yard]) -> None:
    yard = make_yard(lease=1.5)
    cluster = yard.start("-p", "2", "-t", "1")
    name = wait_until(lambda: next((node.cluster for node in yard.app.nodes() if len(yard.app.nodes()) == 2), ""))
    assert name.endswith(f":{cluster.pid}")
    assert len(yard.app.quiet_node(name)) == 2
    wait_until(lambda: [node.state for node in yard.app.nodes()] == ["paused"] * 2)
    handle = yard.jobs.ok.enqueue(7)
    yard.app.resume_node(name)
    assert handle.result(PATIENCE) == 7
    yard.app.stop_node(name)
    assert cluster.wait(PATIENCE) == 0
    assert "has told this node to stop" in yard.log()
    assert "second signal" not in yard.log()
