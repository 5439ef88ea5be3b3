"""What the tests of explanations share: a node that is announced but does nothing, on every kind of store."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.jobstores.base import NodeInfo

EVERY_STORE = pytest.mark.parametrize("url", ["memory", "sqlite", "postgresql", "mariadb", "redis"], indirect=True)
TASK = "mainspring.testing.conformance.helpers:work"
"""What the runs of the conformance suite's helpers call."""


def announce(app: Mainspring, node_id: str = "node-1", *queues: str, **fields: Any) -> None:
    """Announce a node that serves queues."""
    info = {"host": "web", "pid": 7, "started_at": 0, "queues": queues or ("default",), **fields}
    app.store.beat(NodeInfo(id=node_id, **info), 60.0)
