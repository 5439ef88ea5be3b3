"""Broken: the records that were set aside, by reason; each reason's meaning, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mainspring.core.insight.runs import remedy_of
from mainspring.core.insight.wording import several
from mainspring.core.showing.run_view import RunView
from mainspring.dashboard.page import Action, BadParameter, Deed, NoSuchThing, Page, Question, View, there
from mainspring.errors import ConflictingIdError
from mainspring.jobstores.base import BrokenJob

__all__ = ["PAGE"]

MOST_SHOWN: Final = 50
"""The most records to show for one reason."""


class BrokenRecord(NamedTuple):
    """A job or a run that was set aside."""

    id: str
    kind: str
    reason: str
    at: int | None


class ReasonGroup(NamedTuple):
    """The records with one reason: its name, the advice, and the records."""

    word: str
    remedy: str
    records: list[BrokenRecord]


def _record(found: BrokenJob | RunView) -> BrokenRecord:
    if isinstance(found, BrokenJob):
        return BrokenRecord(found.id, "job", found.reason, found.at)
    return BrokenRecord(found.id, "run", found.reason or "?", found.record.finished_at)


def _records(view: View) -> list[BrokenRecord]:
    return [_record(each) for each in view.app.broken()]


def _word(reason: str) -> str:
    return reason.partition(":")[0].strip() or "?"


def read(view: View) -> dict[str, Any]:
    """Read the records that were set aside."""
    groups: dict[str, list[BrokenRecord]] = {}
    for record in _records(view):
        groups.setdefault(_word(record.reason), []).append(record)
    found = [ReasonGroup(word, remedy_of(word), records) for word, records in groups.items()]
    found.sort(key=lambda group: -len(group.records))
    return {"groups": found, "number": sum(len(group.records) for group in found), "most": MOST_SHOWN}


# -- actions -------------------------------------------------------------------------------------------------------


def _one(view: View) -> BrokenRecord:
    name = view.params["id"]
    return there(next((record for record in _records(view) if record.id == name), None), "run", name)


def ask_restore(view: View) -> Question:
    """Ask before putting a record back."""
    record = _one(view)
    text = "It is put back as it was. If its cause is still there, it is set aside again."
    return Question(f"Restore the {record.kind} {record.id[:60]}?", text, "Restore it")


def restore(view: View, form: Mapping[str, str]) -> Deed:
    """Put a record back."""
    record = _one(view)
    try:
        if not view.app.restore(record.id):
            raise NoSuchThing(record.kind, record.id)
    except ConflictingIdError:
        raise BadParameter(
            f"another job has the id {record.id!r} by now; remove that one, or discard this one"
        ) from None
    return Deed(f"The {record.kind} {record.id[:60]} was put back", link=view.of(record.kind, record.id))


def ask_restore_group(view: View) -> Question:
    """Ask before putting back all records with one reason."""
    word = view.params["word"]
    number = sum(_word(record.reason) == word for record in _records(view))
    text = f"{several(number, 'record is', 'records are')} put back. What is still broken is set aside again."
    return Question(f"Restore all with the reason {word}?", text, f"Restore {number:,}")


def restore_group(view: View, form: Mapping[str, str]) -> Deed:
    """Put back all records with one reason."""
    word, done = view.params["word"], 0
    for record in _records(view):
        if _word(record.reason) == word:
            try:
                done += view.app.restore(record.id)
            except ConflictingIdError:
                continue
    return Deed(f"{several(done, 'record')} put back")


def ask_discard(view: View) -> Question:
    """Ask before deleting a record for good."""
    record = _one(view)
    text = f"The {record.kind} and its bytes are deleted. This cannot be undone."
    return Question(f"Discard the {record.kind}?", text, "Discard it", typed="discard", bad=True)


def discard(view: View, form: Mapping[str, str]) -> Deed:
    """Delete a record for good."""
    record = _one(view)
    view.app.discard(record.id)
    return Deed(f"The {record.kind} {record.id[:60]} was deleted")


PAGE = Page(
    path="/broken",
    nav="system",
    title="Broken",
    template="fleet/broken.html",
    read=read,
    regions={"groups": None},
    actions=(
        Action("broken.restore_group", "/broken/reason/{word}/restore", restore_group, ask_restore_group),
        Action("broken.restore", "/broken/{id:path}/restore", restore, ask_restore),
        Action("broken.discard", "/broken/{id:path}/discard", discard, ask_discard, weight="type"),
    ),
)
