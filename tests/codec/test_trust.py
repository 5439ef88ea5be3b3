"""Nothing is unpickled, imported or made that the frame has no right to."""

from __future__ import annotations

import dataclasses
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ormsgpack import Ext, packb

from mainspring.codec import Codec, FrameError, Keyring, Reason
from mainspring.codec.frame import PICKLED, SIGNED, seal
from mainspring.codec.values import Code
from mainspring.errors import ConfigurationError, RunTimeout
from tests.codec.shapes import (
    JOB,
    KEYRING,
    OTHER_KEY,
    Access,
    Color,
    Level,
    Money,
    Order,
    Plain,
    Point,
    Raises,
    Touch,
)

HERE = "tests.codec.shapes"
PERMITTED = Codec(KEYRING, allow_pickle=True)


def refusal(codec: Codec, frame: bytes, context: str = JOB) -> FrameError:
    with pytest.raises(FrameError) as caught:
        codec.loads(frame, context)
    return caught.value


def sealed(value: Any, keyring: Keyring | None = KEYRING, flags: int = 0) -> bytes:
    return seal(packb(value), flags, JOB, keyring)


def obj(ref: Any, *parts: Any) -> Ext:
    return Ext(Code.OBJECT, packb([ref, *parts]))


def enum(text: str) -> Ext:
    return Ext(Code.ENUM, text.encode())


# -- pickle --------------------------------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    return tmp_path / "touched"


def test_a_permitted_pickle_is_executed(trap: Path) -> None:
    PERMITTED.loads(PERMITTED.dumps({"a": Touch(trap)}, JOB), JOB)
    assert trap.exists()  # so the tests below would notice


def test_a_pickle_is_refused_where_it_is_not_allowed(trap: Path) -> None:
    frame = PERMITTED.dumps({"a": Touch(trap)}, JOB)
    error = refusal(Codec(KEYRING), frame)
    assert error.reason is Reason.NOT_ALLOWED
    assert "allow_pickle=True" in str(error)
    assert not trap.exists()


def test_a_pickle_with_a_bad_signature_is_refused(trap: Path) -> None:
    frame = PERMITTED.dumps({"a": Touch(trap)}, JOB)
    for at in range(len(frame)):
        refusal(PERMITTED, frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :])
    assert refusal(PERMITTED, frame, "job:2").reason is Reason.BAD_SIGNATURE
    assert not trap.exists()


@pytest.mark.parametrize("flags", [0, PICKLED, SIGNED | PICKLED])
def test_a_pickle_without_a_signature_is_refused(trap: Path, flags: int) -> None:
    frame = sealed({"a": Ext(Code.PICKLE, pickle.dumps(Touch(trap)))}, None, flags)
    for codec in (Codec(), Codec(KEYRING), PERMITTED):
        refusal(codec, frame)
    assert not trap.exists()


def test_a_pickle_of_an_unknown_key_is_refused(trap: Path) -> None:
    frame = Codec(Keyring([OTHER_KEY]), allow_pickle=True).dumps(Touch(trap), JOB)
    assert refusal(PERMITTED, frame).reason is Reason.UNKNOWN_KEY
    assert refusal(Codec(), frame).reason is Reason.UNKNOWN_KEY
    assert not trap.exists()


def test_a_pickle_that_the_header_does_not_announce_is_refused(trap: Path) -> None:
    frame = sealed([Ext(Code.PICKLE, pickle.dumps(Touch(trap)))])
    assert refusal(PERMITTED, frame).reason is Reason.NOT_ALLOWED
    assert not trap.exists()


def test_a_bare_pickle_is_not_a_frame(trap: Path) -> None:
    for codec in (Codec(), Codec(KEYRING), PERMITTED):
        assert refusal(codec, pickle.dumps(Touch(trap))).reason is Reason.BAD_DATA
    assert not trap.exists()


@pytest.mark.parametrize("error", [ValueError, RecursionError, SystemExit, StopIteration, OSError])
def test_a_pickle_that_raises_is_refused(error: type[BaseException]) -> None:
    assert refusal(PERMITTED, PERMITTED.dumps([Raises(error)], JOB)).reason is Reason.BAD_DATA


@pytest.mark.parametrize("error", [KeyboardInterrupt, RunTimeout])
def test_an_interruption_while_reading_is_not_swallowed(error: type[BaseException]) -> None:
    with pytest.raises(error):
        PERMITTED.loads(PERMITTED.dumps([(Raises(error),)], JOB), JOB)


@pytest.mark.parametrize("name", [b"no_such_module\nPlain\n", b"tests.codec.shapes\nGone\n"])
def test_a_pickle_of_code_that_is_not_here_says_so(name: bytes) -> None:
    frame = sealed(Ext(Code.PICKLE, b"c" + name + b"."), flags=PICKLED)
    assert refusal(PERMITTED, frame).reason is Reason.MISSING_CODE


def test_pickles_go_only_where_they_are_needed() -> None:
    assert PERMITTED.loads(PERMITTED.dumps([1, Plain(2), {3}], JOB), JOB) == [1, Plain(2), {3}]
    assert Codec(KEYRING).loads(PERMITTED.dumps([1, {3}], JOB), JOB) == [1, {3}]


# -- types by name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [Color.RED, Money(Decimal(1)), Point(1.0), [{"a": (Level.LOW,)}]])
def test_under_a_signature_a_type_is_imported_by_name(value: Any) -> None:
    codec = Codec(KEYRING)
    assert codec.loads(codec.dumps(value, JOB), JOB) == value


@pytest.mark.parametrize(("cls", "value"), [(Color, Color.RED), (Money, Money(Decimal(1))), (Point, Point(1.0))])
def test_without_a_signature_only_a_registered_type_is_restored(cls: type, value: Any) -> None:
    frame = Codec(types=[cls]).dumps({"a": value}, JOB)
    error = refusal(Codec(), frame)
    assert error.reason is Reason.NOT_ALLOWED
    assert f"'{HERE}:{cls.__name__}' is not registered" in str(error)
    assert f"register({cls.__name__})" in str(error)
    reader = Codec()
    assert reader.register(cls) is cls
    assert reader.loads(frame, JOB) == {"a": value}


def test_a_misspelt_type_is_told_the_near_one() -> None:
    assert f"did you mean '{HERE}:Color'" in str(refusal(Codec(types=[Color]), sealed(enum(f"{HERE}:Colr=RED"), None)))


def test_without_a_signature_nothing_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "booby_trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nclass C: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    for value in (enum("booby_trap:C=RED"), enum("booby_trap:C#1"), obj("booby_trap:C", "a", 1)):
        assert refusal(Codec(types=[Color]), sealed(value, None)).reason is Reason.NOT_ALLOWED
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("keyring", [KEYRING, None], ids=["signed", "unsigned"])
@pytest.mark.parametrize(
    "value",
    [
        enum("os:system=RED"),
        enum("os:sys.exit=1"),
        enum("builtins:int#5"),
        enum(f"{HERE}:Money=RED"),
        enum(f"{HERE}:Color#1"),
        enum(f"{HERE}:Color.RED=RED"),
        enum("subprocess:Popen=RED"),
        enum(""),
        enum("=RED"),
        enum(":=RED"),
        enum("#"),
        enum("os:=x"),
        enum(f"{HERE}:Access#not a number"),
        enum(f"{HERE}:Access#{'9' * 5000}"),
        enum(f"{HERE}:Access#1024"),
        enum(f"{HERE}:Color=__class__"),
        Ext(Code.ENUM, b"\xff\xfe=x"),
        obj("subprocess:Popen", "args", "touch x"),
        obj("os:system", "command", "x"),
        obj("builtins:exec", "source", "x"),
        obj("builtins:tuple", "a", 1),
        obj(f"{HERE}:Color", "name", "RED"),
        obj(f"{HERE}:Plain", "value", 1),
        obj(f"{HERE}:Money"),
        obj(f"{HERE}:Money", "amount"),
        obj(f"{HERE}:Money", "amount", 1, "amount", 2),
        obj(f"{HERE}:Money", "amount", 1, "__class__", 2),
        obj(f"{HERE}:Money", 1, 2),
        obj(f"{HERE}:Money", ["amount"], 2),
        obj(["x"], "amount", 2),
        obj(None),
        Ext(Code.OBJECT, packb([])),
        Ext(Code.OBJECT, packb({"a": 1})),
    ],
    ids=lambda value: None,
)
def test_a_forged_name_gives_no_object(value: Ext, keyring: Keyring | None) -> None:
    codec = Codec(keyring, types=[Color, Money, Access])
    reason = refusal(codec, sealed({"a": [value]}, keyring)).reason
    assert reason in (Reason.NOT_ALLOWED, Reason.MISSING_CODE, Reason.BAD_DATA)


@pytest.mark.parametrize("value", [enum("os:system=RED"), obj("os:system", "command", "x"), enum("os:path=RED")])
def test_what_is_no_type_is_not_allowed_even_under_a_signature(value: Ext) -> None:
    assert refusal(Codec(KEYRING), sealed(value)).reason is Reason.NOT_ALLOWED


@pytest.mark.parametrize("source", ["raise RuntimeError('no')", "raise SystemExit(3)", "1/0", "def broken(:"])
def test_a_module_that_fails_to_import_is_missing_code(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    error = refusal(Codec(KEYRING), sealed(enum("failing_module:Color=RED")))
    assert error.reason is Reason.MISSING_CODE
    assert "'failing_module:Color' cannot be imported here" in str(error)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (enum("no_such_module:Color=RED"), "cannot be imported here"),
        (enum(f"{HERE}:Colour=RED"), "did you mean 'Color'"),
        (enum(f"{HERE}:Color=GREN"), "no member 'GREN' here; did you mean 'GREEN'"),
        (obj(f"{HERE}:Money", "amount", 1, "tax", 2), "no field 'tax' here; it may be newer elsewhere"),
        (obj(f"{HERE}:Money", "currency", "EUR"), "now also has the field 'amount', which needs a default"),
        (Ext(Code.DATETIME, b"2026-01-01T00:00:00@Moon/Crater"), "the time zone 'Moon/Crater' is not known here"),
    ],
)
def test_what_this_node_does_not_have_is_missing_code(value: Ext, words: str) -> None:
    error = refusal(Codec(KEYRING), sealed([value]))
    assert error.reason is Reason.MISSING_CODE
    assert words in str(error)


def test_a_field_added_since_takes_its_default() -> None:
    codec = Codec(KEYRING)
    assert codec.loads(sealed(obj(f"{HERE}:Money", "amount", 1)), JOB) == Money(1, "EUR")  # type: ignore[arg-type]
    assert codec.loads(sealed(obj(f"{HERE}:Point", "x", 1)), JOB) == Point(1, 0.0)
    assert codec.loads(sealed(obj(f"{HERE}:Order", "lines", [], "id", 1)), JOB) == Order(1, [])  # type: ignore[arg-type]


@pytest.mark.parametrize("thing", [int, Plain, dict, "text", Color.RED, pickle])
def test_only_types_that_can_be_taken_apart_can_be_registered(thing: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"only types can be|no Enum, dataclass, .* say how to store it"):
        Codec(types=[thing])


def test_two_types_of_one_name_cannot_be_registered() -> None:
    impostor = dataclasses.make_dataclass("Money", ["amount"])
    impostor.__module__ = Money.__module__
    with pytest.raises(ConfigurationError, match=f"another type is registered as '{HERE}:Money'"):
        Codec(types=[Money, Money, impostor])


def test_registering_is_a_decorator() -> None:
    codec = Codec()

    @codec.register
    @dataclasses.dataclass
    class Local:
        a: int

    assert codec.loads(codec.dumps([Local(1)], JOB), JOB) == [Local(1)]
