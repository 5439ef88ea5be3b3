"""Turn acts of people into signed rows and back; the fields of a row let a back end find it."""

from __future__ import annotations

import msgspec

from mainspring.codec import Codec, FrameError
from mainspring.core.insight.acts import Act

__all__ = ["ActRow", "act_of_row", "act_row"]


class ActRow(msgspec.Struct, gc=False):
    """A stored act: ids sort by time, `about` names the subject of the act, `frame` is opaque."""

    id: str
    about: str
    frame: bytes


def act_row(codec: Codec, act: Act) -> ActRow:
    """Pack an act."""
    fields = [act.at, act.verb, act.kind, act.target, act.by, act.why, act.details]
    return ActRow(act.id, act.about, codec.dumps(fields, _context(act.id)))


def act_of_row(codec: Codec, row: ActRow) -> Act:
    """Restore an act; an act that cannot be verified says so in place of its author and reason."""
    try:
        at, verb, kind, target, by, why, details = codec.loads(row.frame, _context(row.id))
        return Act(id=row.id, at=at, verb=verb, kind=kind, target=target, by=by, why=why, details=details)
    except (FrameError, TypeError, ValueError) as error:
        kind, _, target = row.about.partition(":")
        return Act(id=row.id, at=0, verb="?", kind=kind, target=target, by="?", why=f"it cannot be read: {error}")


def _context(act_id: str) -> str:
    return f"act:{act_id}"
