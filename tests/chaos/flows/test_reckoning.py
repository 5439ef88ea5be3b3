"""The reckoning of a storm finds what it is there to find: each broken promise, made up here, is seen."""

from __future__ import annotations

import pytest

from mainspring.core.run import ON, After, Call, Run, Status
from mainspring.jobstores.base import QueueInfo
from tests.chaos.flows.reckoning import Logs, reckon

S = Status


def run(name: str, status: Status = S.SUCCEEDED, *after: str, on: str = "success", refused: str | None = None) -> Run:
    behind = tuple(After(each, ON[on]) for each in after)
    return Run(id=name, call=Call("f"), status=status, after=behind, refused=refused)


def broken(text: str, *runs: Run, queues: tuple[QueueInfo, ...] = ()) -> list[str]:
    lines: dict[str, list[list[str]]] = {}
    for line in filter(None, text.split("|")):
        word, *rest = line.split()
        lines.setdefault(word, []).append(rest)
    found = reckon({each.id: each for each in runs}, Logs(lines), queues)
    return [finding.name[:2] for finding in found if finding.wrong]


def test_a_storm_without_fault_passes() -> None:
    text = "added a b c|ended a|ended b|sent_back d|ended e|ended e|early e d pending"
    runs = run("a"), run("b", S.FAILED, "a"), run("c", S.CANCELLED, "b", refused="b"), run("d", S.FAILED)
    assert broken(text, *runs, run("e", S.SUCCEEDED, "d")) == []


@pytest.mark.parametrize(
    ("name", "text", "runs"),
    [
        ("F1", "added a b", [run("a")]),
        ("F2", "", [run("a", S.BLOCKED)]),
        ("F2", "", [run("a", S.RUNNING)]),
        ("F3", "early b a running", [run("a"), run("b", S.SUCCEEDED, "a")]),
        ("F4", "ended a|ended a", [run("a")]),
        ("F5", "", [run("a", S.FAILED), run("b", S.SUCCEEDED, "a")]),
        ("F5", "", [run("a"), run("b", S.FAILED, "a", on="failure")]),
        ("F5", "", [run("a"), run("b", S.CANCELLED, "a", refused="a")]),
        ("F5", "", [run("b", S.SUCCEEDED, "a")]),
        ("F6", "over key:a x y", [run("a")]),
        ("F8", "wrong a repeated call", [run("a")]),
    ],
)
def test_a_broken_promise_is_seen(name: str, text: str, runs: list[Run]) -> None:
    assert broken(text, *runs) == [name]


def test_a_run_that_is_counted_and_not_there_is_seen() -> None:
    assert broken("", run("a"), queues=(QueueInfo(name="first", blocked=1),)) == ["F7"]
