"""One word, one thing: no two classes share a name, and every class is named by what it is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import mainspring

PACKAGE = Path(mainspring.__file__).parent
MODULES = [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))]
CLASSES = [
    (node.name, str(path.relative_to(PACKAGE)))
    for path, tree in MODULES
    for node in tree.body
    if isinstance(node, ast.ClassDef)
]
# Django's models have django-q's names for what the core has other classes for, each migration is a Migration, and each
# command a Command. The drop-in for django-q has its names.
NAMED_BY_DJANGO = ("django/models/", "django/migrations/", "django/management/", "django_q/")
CLASSES = [(name, path) for name, path in CLASSES if not path.startswith(NAMED_BY_DJANGO)]
NO_NOUNS = """
Again Altered Asked Cancelled Claimed Coming Due Elsewhere Ended Expected Failed Finished Fired
Fixed Forgetful Found Given Gone Held Here Kept Known Left Live Lost Missed Mute Once Planned
Reconciled Registers Seen Settled Several Shown Started Stopped Taken Told Unreadable Unsupported
Waited Waiting Whatever Which Whoever
"""
"""Participles, adverbs and pronouns that were class names once: say what the thing is (`DueJob`, not `Due`)."""


def test_no_two_classes_have_one_name() -> None:
    times = Counter(name.lstrip("_") for name, _ in CLASSES)
    twice = sorted(f"{name} in {path}" for name, path in CLASSES if times[name.lstrip("_")] > 1)
    assert not twice


def test_a_class_is_named_by_a_noun() -> None:
    wrong = sorted(f"{name} in {path}" for name, path in CLASSES if name.lstrip("_") in NO_NOUNS.split())
    assert not wrong


def test_people_see_queues_not_lanes() -> None:
    lane = re.compile(r"lanes?(?![a-z])", re.IGNORECASE)
    faces = ("cli", "dashboard", "schedulers", "tracker", "core/insight", "app/insight")
    text = (path for face in faces for path in (PACKAGE / face).rglob("*") if path.suffix in (".py", ".html", ".js"))
    assert not [str(path.relative_to(PACKAGE)) for path in text if lane.search(path.read_text(encoding="utf-8"))]
