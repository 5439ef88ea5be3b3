"""System: the doctor's findings, the store, counters, settings and marks; and the audit of people's acts."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from mainspring import __version__
from mainspring.app.insight.acting import AuditEntry
from mainspring.app.insight.doctor import Diagnosis, Mark, diagnose
from mainspring.core.insight.acts import Act
from mainspring.core.insight.wording import listed, several, took
from mainspring.core.instants import SECOND, from_us
from mainspring.core.showing.redaction import masked
from mainspring.dashboard.memo import remembered_soon
from mainspring.dashboard.page import Action, BadParameter, Deed, Page, Question, View
from mainspring.dashboard.summary import store_address

__all__ = ["AUDIT_PAGE", "PAGE"]

DOCTOR_SECONDS: Final = 15.0
DOCTOR_PATIENCE_SECONDS: Final = 0.1
"""The seconds to wait for the doctor, which reads each job and thousands of records; then show the page without it."""
AUDIT_PAGE_ENTRIES: Final = 50
MOST_FINDINGS: Final = 60
_COUNTERS: Final = {
    "jobs": "Jobs",
    "aside": "Jobs set aside",
    "succeeded": "Succeeded, ever",
    "failed": "Failed, ever",
    "cancelled": "Cancelled, ever",
    "missed": "Missed, ever",
    "broken": "Runs broken, ever",
}
_SHAPES: Final = {Mark.OK: "up", Mark.WARNING: "late", Mark.PROBLEM: "down"}
_CURSOR: Final = re.compile(r"[0-9a-f]{16,64}")
_KINDS: Final = ("", "run", "runs", "job", "queue", "node", "app")


def findings(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Let the doctor examine the store, the nodes and the records."""
    found: Diagnosis | None = remembered_soon(
        view.app, "system.doctor", DOCTOR_SECONDS, lambda: diagnose(view.app), DOCTOR_PATIENCE_SECONDS
    )
    if found is None:  # the doctor reads every job; an update brings its findings later
        looking = "The doctor is looking: what it finds appears here by itself."
        return {"findings": [], "more": 0, "sentence": looking, "shape": "running", "level": ""}
    ordered = sorted(found.findings, key=lambda each: list(reversed(Mark)).index(each.mark))
    problems, warnings = found.count(Mark.PROBLEM), found.count(Mark.WARNING)
    if problems:
        sentence = f"{several(problems, 'problem needs', 'problems need')} you{_first(problems)}: {ordered[0].text}."
    elif warnings:
        sentence = f"{several(warnings, 'thing is', 'things are')} worth a look{_first(warnings)}: {ordered[0].text}."
    else:
        sentence = f"All {len(ordered)} checks are fine."
    return {
        "findings": [(_SHAPES[each.mark], each) for each in ordered[:MOST_FINDINGS]],
        "more": max(0, len(ordered) - MOST_FINDINGS),
        "sentence": sentence,
        "shape": "down" if problems else "late" if warnings else "up",
        "level": found.level,
    }


def _first(number: int) -> str:
    return "" if number == 1 else ", first"


def store(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Measure the store, and read its counters."""
    app = view.app
    figures = view.cached("system.store", 10.0, app.store_figures)
    counters = {**view.cached("system.counters", 2.0, app.counters), "aside": len(view.summary.broken_jobs)}
    return {
        "where": store_address(app),
        "size": "" if figures.size is None else _bytes(figures.size),
        "latency": f"{figures.latency * 1000:.1f} ms" if figures.latency >= 0.0001 else "less than 0.1 ms",
        "counters": [(words, counters[name]) for name, words in _COUNTERS.items() if name in counters],
    }


def _bytes(number: int) -> str:
    for size, word in ((2**30, "GB"), (2**20, "MB"), (2**10, "kB")):
        if number >= size:
            return f"{number / size:.1f} {word}"
    return f"{number} bytes"


def settings(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Show the settings of the app, with keys and passwords hidden."""
    app = view.app
    pairs = [
        ("App", app.name),
        ("Code", app.code or "not given: Mainspring(code=...)"),
        ("Zone", str(app.timezone)),
        ("Lease", took(int(app.lease * SECOND))),
        ("Requires", app.require or "nothing"),
        ("Key", "set: what is stored is signed" if app.codec.signed else "none: what is stored is not signed"),
        ("Queues", listed(app.declared_queues(), 12)),
        ("Tasks", str(len(view.tasks))),
        ("Declared jobs", f"{app.jobs.declared}"),
        ("mainspring", __version__),
        ("Python", platform.python_version()),
    ]
    return {"settings": pairs, "marks": app.marks(timedelta(days=90), limit=10)}


def acts(view: View, data: dict[str, Any]) -> dict[str, Any]:
    """Show people's latest acts."""
    return {"entries": _shown(view.app.audit(limit=8))}


def _shown(entries: list[AuditEntry]) -> list[tuple[AuditEntry, str]]:
    return [(entry, _details(entry.details)) for entry in entries]


def _details(details: Mapping[str, Any]) -> str:
    shown = masked((), details)[1]
    return "; ".join(f"{name}: {_words(value)}" for name, value in shown.items() if name != "began")[:300]


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else repr(value)


# -- marks -----------------------------------------------------------------------------------------------------------


def ask_mark(view: View) -> Question:
    """Ask for the text of a mark."""
    text = "Charts show a line at this moment."
    return Question("Mark this moment?", text, "Mark it", template="fields/mark.html", fields={"text": ""})


def mark(view: View, form: Mapping[str, str]) -> Deed:
    """Mark this moment in charts."""
    view.app.mark(form.get("text", "")[:200])
    return Deed("This moment is marked")


PAGE = Page(
    path="/system",
    nav="system",
    title="System",
    template="fleet/system.html",
    regions={"state": findings, "findings": findings, "store": store, "settings": settings, "acts": acts},
    actions=(Action("system.mark", "/system/mark", mark, ask_mark),),
)


# -- the audit -------------------------------------------------------------------------------------------------------


def read_audit(view: View) -> dict[str, Any]:
    """Read a page of the audit: all of it, or the acts on one subject."""
    kind, target = view.choice("kind", _KINDS, ""), view.text("target", most=600)
    if bool(kind) != bool(target):
        raise BadParameter("give both kind and target, as in kind=queue and target=mail, or neither")
    after = _entry_at(view.text("after", most=64))
    chosen = {"kind": kind, "target": target} if kind else {"kind": None, "target": None}
    found = view.app.audit(after=after, limit=AUDIT_PAGE_ENTRIES + 1, **chosen)
    entries = found[:AUDIT_PAGE_ENTRIES]
    older = ""
    if len(found) > len(entries):
        older = view.url("/system/audit", kind=kind, target=target, after=entries[-1].record.id)
    return {"entries": _shown(entries), "older": older, "kind": kind, "target": target, "later": after is not None}


def _entry_at(cursor: str) -> AuditEntry | None:
    if not cursor:
        return None
    if not _CURSOR.fullmatch(cursor):
        raise BadParameter(f"after={cursor!r} is no place in the audit")
    at = int(cursor[:16], 16)
    act = Act(id=cursor, at=at, verb="", kind="", target="", by="")
    return AuditEntry(from_us(min(at, 2**52)), "", "", "", "", "", {}, act)


AUDIT_PAGE = Page("/system/audit", "system", "Audit", "fleet/audit.html", read_audit, regions={"entries": None})
