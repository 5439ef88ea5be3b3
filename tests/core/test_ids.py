"""Ids: pinned to a shard once, however often they are given."""

from __future__ import annotations

from mainspring.core.ids import pin


def test_an_id_is_pinned_once() -> None:
    pinned = pin("tenant-7", "report")
    assert pinned == "{tenant-7}report"
    assert pin("tenant-7", pinned) == pinned
    assert pin("tenant-8", pinned) == "{tenant-8}{tenant-7}report"
