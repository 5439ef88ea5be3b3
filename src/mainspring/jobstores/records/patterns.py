"""Pack many runs of one task, and make their common parts only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from mainspring.codec import EncodeError
from mainspring.core.run import Run
from mainspring.jobstores.base import PackLike
from mainspring.jobstores.records.calls import call_to_data, in_call
from mainspring.jobstores.records.packing import RecordPacker, origin
from mainspring.jobstores.records.rows import RunRow

__all__ = ["rows_like"]


def rows_like(packer: RecordPacker, run: Run) -> PackLike:
    """Return a function that packs runs like this one; see `JobStore.pack_like`."""
    bare = replace(run, call=replace(run.call, args=(), kwargs={}, frame=None))
    row, common = packer.run_row(bare), call_to_data(bare.call, run.policy, run.id)
    first = common["a"]  # for a method, its object
    dumps, where = packer.codec.dumps, origin("", None, run.queue)

    def pack(run_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], now: int) -> RunRow:
        try:
            frame = dumps({**common, "a": [*first, *args], "k": dict(kwargs)}, where + run_id)
        except EncodeError as error:
            raise in_call(error, common["f"]) from error.__cause__
        return replace(row, id=run_id, call=frame, run_at=now, created_at=now)

    return pack
