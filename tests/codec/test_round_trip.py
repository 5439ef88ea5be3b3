"""Every kind of value comes back exactly as it was."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.codec import Codec
from tests.codec.shapes import (
    JOB,
    KEYRING,
    Access,
    Color,
    Doubling,
    Level,
    Mode,
    Money,
    NamedPair,
    Order,
    Outer,
    Pair,
    Plain,
    Point,
    Word,
    exact,
)

TYPES = [Access, Color, Doubling, Level, Mode, Money, NamedPair, Order, Outer.Inner, Pair, Point, Word]
SIGNED = Codec(KEYRING)
UNSIGNED = Codec(types=TYPES)
BERLIN = ZoneInfo("Europe/Berlin")

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**5000,
    -(10**5000),
    0.0,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "text \N{SNOWMAN} \0",
    "a lone \ud800 surrogate",
    b"",
    b"\x00\xff\xc4\xc5\xc6",
    [],
    [1, [2, [3, []]]],
    (),
    (1, (2, [3]), ()),
    set(),
    {1, "a", (2, 3), frozenset([4])},
    frozenset(),
    frozenset([1, None, b"x"]),
    {},
    {"a": 1, "b": {"c": [1]}},
    {1: "int", "1": "str", (1, 2): "tuple", None: "none", 1.5: "float", b"b": "bytes", frozenset([1]): "set"},
    {True: 1, 2: [{3: {4: 5}}]},
    {2**70: 1, Decimal("1.0"): 2, date(2026, 1, 2): 3, Color.RED: 4, UUID(int=5): 6, Point(1, 2): 7},
    {"\ud800": 1, "b": 2},
    {Word.YES: 1, Level.HIGH: 2},
    datetime(2026, 11, 15, 20, 17, 3, 215086),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 11, 15, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2026, 11, 15, tzinfo=timezone(timedelta(seconds=61, microseconds=7))),
    datetime(2026, 11, 15, tzinfo=timezone(timedelta(hours=2), "a name = of @ one's own ~")),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("UTC")),
    datetime(2026, 10, 25, 2, 30, fold=1),
    date(2026, 2, 28),
    time(1, 2, 3, 4),
    time(1, 2, tzinfo=UTC),
    time(1, 2, tzinfo=BERLIN, fold=1),
    timedelta.min,
    timedelta.max,
    timedelta(days=-1, microseconds=1),
    UUID("c0b85348-a5f2-460a-938b-caac4afbd59a"),
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("1E+999999"),
    Decimal("NaN"),
    Decimal("sNaN123"),
    Decimal("-Infinity"),
    Decimal("0." + "1" * 5000),
    Color.RED,
    Color.CRIMSON,
    Color.GREEN,
    Level.HIGH,
    Word.NO,
    Outer.Inner.ONE,
    Access.READ,
    Access.READ | Access.WRITE,
    Access.NONE,
    Mode.X | Mode.W,
    Mode(0),
    Money(Decimal("9.99")),
    Order(1, (Money(Decimal(1)), Money(Decimal(2), "USD")), datetime(2026, 1, 1, tzinfo=UTC), Color.GREEN),
    Doubling(21),
    Point(1.5),
    Pair([1], {2}),
    NamedPair(Color.RED, ()),
    Path("/srv/jobs"),
    Path("a \udcff name"),
    PurePosixPath("a/b"),
    PureWindowsPath("c:\\a\\b"),
    OrderedDict(b=1, a=[2]),
    OrderedDict({(1, 2): OrderedDict()}),
    defaultdict(list, {"a": [1], 2: []}),
    defaultdict(None),
    deque([1, (2,), [3]]),
    deque(maxlen=0),
    deque([1, 2], 5),
    [Color.RED, [Level.LOW, {"a": Point(1.0, 2.0)}]],
]


def _short(value: object) -> str:
    return f"{type(value).__name__}-{exact(value)[:30]}"


@pytest.mark.parametrize("codec", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
@pytest.mark.parametrize("value", VALUES, ids=_short)
def test_a_value_comes_back_with_its_type(codec: Codec, value: Any) -> None:
    assert exact(codec.loads(codec.dumps(value, JOB), JOB)) == exact(value)


@pytest.mark.parametrize("value", VALUES, ids=_short)
def test_a_value_comes_back_from_within_others(value: Any) -> None:
    nest = {"args": (value, [value]), "kwargs": {"x": {"y": value}}, 1: value}
    assert exact(SIGNED.loads(SIGNED.dumps(nest, JOB), JOB)) == exact(nest)


def test_a_nan_stays_a_key_of_its_own() -> None:
    back = SIGNED.loads(SIGNED.dumps({float("nan"): 1, float("-nan"): 2}, JOB), JOB)
    assert [str(key) for key in back] == ["nan", "nan"]


def test_an_object_is_restored_without_making_it_a_second_time() -> None:
    made = Doubling(21)
    made.slow()
    back = UNSIGNED.loads(UNSIGNED.dumps(made, JOB), JOB)
    assert (back.amount, back.total, back.slow()) == (42, 43, 43)


def test_a_named_tuple_keeps_its_methods() -> None:
    assert SIGNED.loads(SIGNED.dumps(NamedPair(1, 2), JOB), JOB).swapped() == (2, 1)


def test_what_only_a_pickle_can_hold_comes_back_where_pickle_is_allowed() -> None:
    codec = Codec(KEYRING, allow_pickle=True)
    value = {"a": Plain([1, (2,)]), "b": bytearray(b"x"), "c": complex(1, 2), "d": range(3), "when": time(1)}
    assert codec.loads(codec.dumps(value, JOB), JOB) == value


def test_plain_values_are_not_pickled_where_pickle_is_allowed() -> None:
    frame = Codec(KEYRING, allow_pickle=True).dumps({"a": (1, {2}), "b": Color.RED, 3: Money(Decimal(1))}, JOB)
    assert SIGNED.loads(frame, JOB) == {"a": (1, {2}), "b": Color.RED, 3: Money(Decimal(1))}


@pytest.mark.parametrize("size", [100, 10_000, 900_000, 16_000_000])
@pytest.mark.parametrize("codec", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
def test_a_large_text_comes_back_however_well_it_compresses(codec: Codec, size: int) -> None:
    frame = codec.dumps("a" * size, JOB)
    assert codec.loads(frame, JOB) == "a" * size


def test_what_compresses_well_is_stored_compressed() -> None:
    assert len(SIGNED.dumps([{"name": "a", "number": 1}] * 1000, JOB)) < 2000


def test_what_does_not_compress_is_stored_as_it_is() -> None:
    noise = b"".join(UUID(int=7**n % 2**128).bytes for n in range(400))
    assert len(SIGNED.dumps(noise, JOB)) < len(noise) + 64


def test_thousands_of_records_come_back() -> None:
    records = [
        {"id": n, "when": datetime(2026, 1, 1, tzinfo=UTC), "tags": ("a", n), "raw": b"\xc4"} for n in range(3000)
    ]
    assert UNSIGNED.loads(UNSIGNED.dumps(records, JOB), JOB) == records


def test_a_frame_may_come_as_a_view_of_a_buffer() -> None:
    frame = SIGNED.dumps([1], JOB)
    assert SIGNED.loads(memoryview(frame), JOB) == SIGNED.loads(bytearray(frame), JOB) == [1]


zones = st.none() | st.timezones() | st.integers(-1439, 1439).map(lambda n: timezone(timedelta(minutes=n)))
hashable_atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.binary(max_size=20)
    | st.builds(lambda at, fold: at.replace(fold=fold), st.datetimes(timezones=zones), st.integers(0, 1))
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.sampled_from([*Color, *Level, *Word, *Access, *Mode])
)
hashables = st.recursive(
    hashable_atoms,
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.frozensets(inner, max_size=4)
        | st.builds(Point, inner, inner)
        | st.builds(NamedPair, inner, inner)
    ),
    max_leaves=5,
)
values = st.recursive(
    hashables | st.floats() | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.sets(hashables, max_size=5)
        | st.dictionaries(st.text(max_size=10), inner, max_size=5)
        | st.dictionaries(hashables, inner, max_size=5)
        | st.builds(Money, inner, inner)
        | st.builds(Order, inner, inner)
    ),
    max_leaves=20,
)


@given(values)
def test_any_value_comes_back_from_a_signed_frame(value: Any) -> None:
    assert exact(SIGNED.loads(SIGNED.dumps(value, JOB), JOB)) == exact(value)


@given(values)
def test_any_value_comes_back_from_an_unsigned_frame(value: Any) -> None:
    # So many containers that no short cut is taken: every byte of the document is looked at.
    crowd = [value, [[] for _ in range(70)]]
    assert exact(UNSIGNED.loads(UNSIGNED.dumps(crowd, JOB), JOB)) == exact(crowd)
