"""A slice of the forged frames of `fuzz`, and defects that it has to find: S7 of the checklist."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainspring import codec
from mainspring.codec import Keyring
from mainspring.codec.frame import COMPRESSED, Scope, open_frame, seal
from mainspring.codec.types import TypeBook
from mainspring.codec.unpack import Unpacker
from mainspring.codec.values import READERS, Code
from tests.security.fuzz import DAMAGE, HEADERS, SEALS, SQUEEZES, Fault, Judge, forge

SLICE = range(8000)
REASONS = ["bad_data", "truncated"]
UNREAD = ["bad_signature", "unknown_key", "unsigned", *REASONS]
READ = ["a value", "missing_code", "not_allowed", "too_large", *REASONS]


@pytest.fixture
def judge(tmp_path: Path) -> Any:
    judge = Judge(tmp_path)
    yield judge
    judge.close()


def judge_all(judge: Judge) -> None:
    for number in SLICE:
        judge(forge(number, judge.trap))


def test_forged_frames_are_refused_or_harmless_at_every_layer(judge: Judge) -> None:
    judge_all(judge)
    layers = {"whole", "damaged", "grown", *SQUEEZES, *SEALS, *HEADERS, *DAMAGE}
    outcomes = {f"keyless: {each}" for each in [*READ, "unknown_key"]} | {f"pickling: {each}" for each in UNREAD}
    outcomes |= {f"keyed: {each}" for each in {*READ, *UNREAD}}
    assert {*judge.seen, "untouched"} == layers | outcomes | {"untouched"}
    assert min(judge.seen[name] for name in layers) > 100
    assert judge.seen["keyless: a value"] > 1000


def _unsigned_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = TypeBook.__init__
    monkeypatch.setattr(TypeBook, "__init__", lambda self, types, imports: begin(self, types, imports=True))


def _unsigned_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Unpacker.__init__
    monkeypatch.setattr(
        Unpacker, "__init__", lambda self, book, signed, unpickles: begin(self, book, signed=signed, unpickles=True)
    )


def _looks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(frame: bytes, context: str, keyring: Keyring | None, scope: Scope) -> tuple[int, bytes]:
        vars(codec)["unpack_plain"](frame[44:])
        return open_frame(frame, context, keyring, scope)

    monkeypatch.setattr(codec, "open_frame", look)


DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "signatures are not compared": lambda patch: patch.setattr(hmac, "compare_digest", lambda *_: True),
    "the parser comes before the signature": _looks_first,
    "what nobody signed is imported": _unsigned_imports,
    "what nobody signed is unpickled": _unsigned_pickles,
    "numbers are read backwards": lambda patch: patch.setitem(
        READERS, Code.INT, lambda body: int.from_bytes(body, "little", signed=True)
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_slice_finds_a_defect(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[name](monkeypatch)
    judge = Judge(tmp_path)
    try:
        with pytest.raises(Fault):
            judge_all(judge)
    finally:
        judge.close()


def test_a_number_always_gives_the_same_frame(tmp_path: Path) -> None:
    assert [forge(number, tmp_path) for number in range(300)] == [forge(number, tmp_path) for number in range(300)]


def test_a_judge_knows_a_genuine_frame_from_one_that_is_not(judge: Judge) -> None:
    case = next(case for number in SLICE if (case := forge(number, judge.trap)).genuine and "whole" in case.layers)
    judge(case)
    with pytest.raises(Fault, match="nobody has signed"):
        judge(case._replace(genuine=False))


def test_a_frame_that_raises_something_else_is_a_fault(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec.Codec, "_loads", lambda *_: exec("raise KeyboardInterrupt"))
    with pytest.raises(Fault, match="raised KeyboardInterrupt"):
        judge(forge(0, judge.trap)._replace(frame=seal(b"", COMPRESSED, "job:1", None)))
