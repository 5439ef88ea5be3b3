"""What cannot be stored is refused when it is stored, with the way to it."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytz
from dateutil.tz import gettz

from mainspring.codec import Codec, EncodeError
from mainspring.errors import MainspringError, RunTimeout
from tests.codec.shapes import (
    JOB,
    KEYRING,
    Blind,
    Carrying,
    Color,
    Half,
    Labelled,
    Money,
    Odd,
    Pair,
    Plain,
    Point,
    Raises,
    Text,
)

SIGNED = Codec(KEYRING)


def refusal(value: Any, codec: Codec = SIGNED) -> EncodeError:
    with pytest.raises(EncodeError) as caught:
        codec.dumps(value, JOB)
    return caught.value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), ""),
        ({"args": (1, object())}, "args[1]"),
        ({"kwargs": {"user": {"created": object()}}}, "kwargs.user.created"),
        ({"kwargs": {"full name": [object()]}}, "kwargs['full name'][0]"),
        ([[], [object()]], "[1][0]"),
        ({"a": {1: object()}}, "a[1]"),
        ({"a": {(1, 2): [object()]}}, "a[(1, 2)][0]"),
        ({"a": {Odd("k"): 1}}, "a.key(odd k)"),
        ({"a": {1, Odd("t")}}, "a.item(odd t)"),
        ({"a": OrderedDict({1: object()})}, "a[1]"),
        ({"a": defaultdict(int, {Odd("k"): 1})}, "a.key(odd k)"),
        ({"a": defaultdict(int, {"k": object()})}, "a.k"),
        ({"a": deque([1, object()])}, "a[1]"),
        ({"a": Text("t"), "b": Counter({"c": object()})}, "b.c"),
        ({"a": Money(object())}, "a.amount"),  # type: ignore[arg-type]
        ({"a": Point(1, {"b": object()})}, "a.y.b"),  # type: ignore[arg-type]
        ({"a": Pair(Money(object()), 1)}, "a.first.amount"),  # type: ignore[arg-type]
        ({"x" * 400: {"y": object()}}, f"{'x' * 150}...{'x' * 98}.y"),
    ],
)
def test_the_path_leads_to_the_value(value: Any, path: str) -> None:
    error = refusal(value)
    assert error.path == path
    assert str(error).startswith(path or "the value")


def test_the_text_says_what_it_is_and_what_to_do() -> None:
    error = refusal({"kwargs": {"user": {"home": Plain(1)}}})
    assert error.kind == "tests.codec.shapes.Plain"
    assert str(error) == (
        "kwargs.user.home is a tests.codec.shapes.Plain, which cannot be stored; use plain values, a dataclass or"
        " an id to look it up by, say how to store it (register_type), or allow pickle: allow_pickle=True and"
        " secret_key=... in BackgroundScheduler(...) or Mainspring(...)"
    )


@pytest.mark.parametrize(
    ("value", "kind", "hint"),
    [
        (defaultdict(lambda: 1), "collections.defaultdict", "pass dict(...)"),
        (Labelled("x"), "tests.codec.shapes.Labelled", "make it one of the two"),
        ({Blind("x"): 1, Blind("x"): 2}, "dict", "would be equal when they come back"),
        ({Blind("x"), Blind("x")}, "set", "would be equal when they come back"),
        (bytearray(b"x"), "bytearray", "pass bytes(...)"),
        (memoryview(b"x"), "memoryview", "pass bytes(...)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_as_something_else_is_refused(value: Any, kind: str, hint: str) -> None:
    for nest in ({"a": value}, {"a": (value,)}, {"a": [Color.RED, value]}):
        error = refusal(nest)
        assert (error.kind, error.path[0]) == (kind, "a")
        assert hint in str(error)


def test_a_buffer_is_found_among_thousands_of_values() -> None:
    assert refusal([[b"bytes", n] for n in range(2000)] + [[bytearray(b"x")]]).path == "[2000][0]"


@pytest.mark.parametrize(
    "zone",
    [pytz.timezone("Europe/Berlin"), gettz("Europe/Berlin"), "file"],
    ids=["pytz", "dateutil", "without a key"],
)
def test_a_time_zone_that_others_could_not_look_up_is_refused(zone: tzinfo | str) -> None:
    if isinstance(zone, str):
        tzdata = pytest.importorskip("tzdata")
        with (Path(tzdata.__file__).parent / "zoneinfo" / "Europe" / "Berlin").open("rb") as file:
            zone = ZoneInfo.from_file(file)
    error = refusal({"at": datetime(2026, 1, 1, tzinfo=zone)})
    assert error.path == "at"
    assert "zoneinfo.ZoneInfo" in str(error)


def test_a_type_inside_a_function_is_refused_with_what_to_do() -> None:
    class Local(Enum):
        ONE = 1

    assert "move it to its module" in str(refusal({"a": Local.ONE}))


def test_a_type_hidden_by_another_of_its_name_is_refused() -> None:
    impostor = dataclasses.make_dataclass("Money", ["amount"])
    impostor.__module__ = Money.__module__
    assert "whose type cannot be found by name" in str(refusal([impostor(1)]))


def test_without_a_key_a_type_has_to_be_registered_to_be_stored() -> None:
    error = refusal({"color": Color.RED}, Codec())
    assert (error.path, error.kind) == ("color", "tests.codec.shapes.Color")
    assert "BackgroundScheduler(types=[Color])) or call register(Color)" in str(error)


def test_an_object_with_undeclared_attributes_is_refused() -> None:
    assert "attribute 'undeclared', which is not a field" in str(refusal({"a": Carrying(1)}))


def test_an_object_without_a_value_for_a_field_is_refused() -> None:
    assert "undone" in str(refusal({"a": Half(1)}))


def nested(levels: int, wrap: Any = lambda inner: [inner]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


WRAPS = {
    "list": lambda inner: [inner],
    "tuple": lambda inner: (inner,),
    "dict": lambda inner: {"a": inner},
    "mapping": lambda inner: {1: inner},
    "dataclass": Money,
    "mix": lambda inner: [({"a": inner},)],
}


@pytest.mark.parametrize("name", WRAPS)
@pytest.mark.parametrize("codec", [SIGNED, Codec(types=[Money])], ids=["signed", "unsigned"])
def test_up_to_sixty_four_levels_come_back(name: str, codec: Codec) -> None:
    deep = nested(21 if name == "mix" else 64, WRAPS[name])
    assert codec.loads(codec.dumps(deep, JOB), JOB) == deep


@pytest.mark.parametrize("name", WRAPS)
@pytest.mark.parametrize("levels", [65, 300, 3000])
def test_more_levels_are_refused(name: str, levels: int) -> None:
    assert "nested deeper than 64 levels" in str(refusal(nested(levels, WRAPS[name])))


def test_what_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append({"a": (ring,)})
    assert "does it contain itself?" in str(refusal(ring))


@pytest.mark.parametrize("name", ["list", "tuple", "dict"])
def test_deep_values_do_no_harm_to_a_thread_with_a_small_stack(name: str) -> None:
    errors: list[EncodeError] = []
    value = {"args": (nested(900, WRAPS[name]),)}
    before = threading.stack_size(128 * 1024)
    try:
        thread = threading.Thread(target=lambda: errors.append(refusal(value)))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(errors) == 1


def test_an_error_survives_pickling() -> None:
    error = refusal({"a": Plain(1)})
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.path, copy.kind, str(copy)) == (error.path, error.kind, str(error))
    assert isinstance(copy, MainspringError)
    assert isinstance(copy, TypeError)
    assert isinstance(copy, ValueError)


def test_what_cannot_even_be_pickled_is_refused_with_the_way_to_it() -> None:
    error = refusal({"a": [threading.Lock()]}, Codec(KEYRING, allow_pickle=True))
    assert error.path == "a[0]"
    assert "cannot be pickled" in str(error)


class Interrupted:
    """Is interrupted while it is pickled for the first time."""

    def __init__(self, error: type[BaseException]) -> None:
        self.errors = [error]

    def __reduce__(self) -> Any:
        raise self.errors.pop()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RunTimeout])
def test_an_interruption_while_storing_is_not_swallowed(error: type[BaseException]) -> None:
    with pytest.raises(error):
        Codec(KEYRING, allow_pickle=True).dumps({"a": (Interrupted(error),)}, JOB)


def test_a_value_with_a_broken_repr_still_gets_its_path() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError

    assert refusal({"a": {Mute(): 1}}).path == "a.key(Mute)"


def test_a_duration_beyond_the_calendar_is_no_problem() -> None:
    assert SIGNED.loads(SIGNED.dumps(timedelta(days=999_999_999), JOB), JOB) == timedelta(days=999_999_999)


def test_a_harmful_value_is_stored_only_where_pickle_is_allowed() -> None:
    assert refusal([Raises(ValueError)]).path == "[0]"
