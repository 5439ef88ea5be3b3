"""Documents made to hurt the parser, and thousands of damaged frames: refused, with nothing else raised."""

from __future__ import annotations

import json
import pickle
import random
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
import pytest
from ormsgpack import Ext, packb

from mainspring.codec import Codec, EncodeError, FrameError, Keyring, Reason
from mainspring.codec.frame import COMPRESSED, PICKLED, seal
from mainspring.codec.values import Code
from tests.codec.shapes import JOB, KEYRING, OTHER_KEY, Color, Money, Plain, Point, Touch

UNSIGNED = Codec(types=[Color, Money, Point])
SIGNED = Codec(KEYRING)
TUPLE = Code.TUPLE


def refusal(codec: Codec, frame: bytes, context: str = JOB) -> FrameError:
    with pytest.raises(FrameError) as caught:
        codec.loads(frame, context)
    return caught.value


def unsigned(payload: bytes, flags: int = 0) -> bytes:
    return seal(payload, flags, JOB, None)


def signed(payload: bytes, flags: int = 0) -> bytes:
    return seal(payload, flags, JOB, KEYRING)


FORGED = {
    "nothing": b"",
    "a reserved byte": b"\xc1",
    "invalid UTF-8": b"\xa2\xff\xfe",
    "invalid UTF-8 in a key": b"\x81\xa2\xff\xfe\x01",
    "a key that is no text": b"\x81\x01\x02",
    "a map as a key": b"\x81\x80\x02",
    "an array of four billion": b"\xdd\xff\xff\xff\xff",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "a text of four billion": b"\xdb\xff\xff\xff\xffab",
    "bytes of four billion": b"\xc6\xff\xff\xff\xffab",
    "an extension of four billion": b"\xc9\xff\xff\xff\xff\x01ab",
    "arrays that promise more arrays": b"\xdd\x7f\xff\xff\xff" * 1000,
    "a time stamp": b"\xd6\xff\x01\x02\x03\x04",
    "extension -128": b"\xd4\x80x",
    **{f"extension {code}": packb(Ext(code, b"x")) for code in (0, 6, 15, 25, 31, 33, 100, 127)},
    **{f"extension {code}, empty": packb(Ext(code, b"")) for code in (1, 2, 3, 4, 5, 16, 19, 20, 21, 22, 23, 24, 32)},
    **{f"extension {code}, noise": packb(Ext(code, b"\xff\x00\xfe~@=")) for code in (1, 2, 3, 4, 5, *range(19, 25))},
    "a tuple of no array": packb(Ext(TUPLE, packb("text"))),
    "a tuple of a map": packb(Ext(TUPLE, packb({"a": 1}))),
    "a tuple in a tuple without an array": packb(Ext(TUPLE, packb(Ext(TUPLE, packb([]))))),
    "a set with an element twice": packb(Ext(Code.SET, packb([1, 1]))),
    "a set with one and true": packb(Ext(Code.SET, packb([1, True]))),
    "a set of lists": packb(Ext(Code.SET, packb([[]]))),
    "a dict with a key twice": packb(Ext(Code.DICT, packb([1, 2, 1, 3]))),
    "a dict without a value": packb(Ext(Code.DICT, packb([1, 2, 3]))),
    "a dict with a list as key": packb(Ext(Code.DICT, packb([[], 1]))),
    "an ordered dict with a key twice": packb(Ext(Code.ORDERED_DICT, packb([1, 2, 1, 3]))),
    "a default dict that calls eval": packb(Ext(Code.DEFAULT_DICT, packb(["eval"]))),
    "a default dict that calls a number": packb(Ext(Code.DEFAULT_DICT, packb([1]))),
    "a default dict of nothing": packb(Ext(Code.DEFAULT_DICT, packb([]))),
    "a deque of nothing": packb(Ext(Code.DEQUE, packb([]))),
    "a deque that is too long": packb(Ext(Code.DEQUE, packb([1, 2, 3]))),
    "a deque with a text as length": packb(Ext(Code.DEQUE, packb(["1"]))),
    "a user's object without a value": packb(Ext(Code.CUSTOM, packb(["a:b"]))),
    "a user's object without a name": packb(Ext(Code.CUSTOM, packb([1, 2]))),
    "a path of an unknown system": packb(Ext(Code.PATH, b"amiga:x")),
    "a date that never was": packb(Ext(Code.DATE, b"2026-02-30")),
    "a time that never was": packb(Ext(Code.TIME, b"25:00")),
    "a moment with two zones": packb(Ext(Code.DATETIME, b"2026-01-01T00:00+01:00@")),
    "a named offset without an offset": packb(Ext(Code.DATETIME, b"2026-01-01T00:00=name")),
    "a zone outside the zones": packb(Ext(Code.DATETIME, b"2026-01-01T00:00@../../etc/passwd")),
    "a zone that is a folder": packb(Ext(Code.DATETIME, b"2026-01-01T00:00@Europe")),
    "a zone with a long name": packb(Ext(Code.DATETIME, b"2026-01-01T00:00@" + b"x" * 5000)),
    "a duration out of range": packb(Ext(Code.TIMEDELTA, b"\x7f\xff\xff\xff" + b"\0" * 8)),
    "a duration cut short": packb(Ext(Code.TIMEDELTA, b"\0" * 11)),
    "a UUID cut short": packb(Ext(Code.UUID, b"\0" * 15)),
    "a decimal that is none": packb(Ext(Code.DECIMAL, b"1.2.3")),
    "a decimal out of range": packb(Ext(Code.DECIMAL, b"1E+99999999999999999999")),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_document_is_refused(name: str) -> None:
    for payload in (FORGED[name], b"\x92\x01" + FORGED[name]):
        assert refusal(UNSIGNED, unsigned(payload)).reason in (Reason.BAD_DATA, Reason.MISSING_CODE, Reason.NOT_ALLOWED)
        assert refusal(SIGNED, signed(payload)).reason in (Reason.BAD_DATA, Reason.MISSING_CODE, Reason.NOT_ALLOWED)


@pytest.mark.parametrize("name", [name for name in FORGED if name.startswith(("an array of", "a map of", "arrays"))])
def test_a_promise_of_more_items_than_bytes_is_refused_before_parsing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ormsgpack, "unpackb", None)
    for payload in (FORGED[name], packb([1, Ext(TUPLE, FORGED[name] if name.startswith("ar") else b"\xdd\x7f\0\0\0")])):
        assert "does not end where it should" in str(refusal(UNSIGNED, unsigned(payload)))


def test_of_a_plain_key_given_twice_the_last_counts() -> None:
    assert UNSIGNED.loads(unsigned(b"\x82\xa1a\x01\xa1a\x02"), JOB) == {"a": 2}


def test_an_integer_of_thousands_of_digits_is_read_in_a_moment() -> None:
    frame = SIGNED.dumps(-(7**200_000), JOB)
    assert SIGNED.loads(frame, JOB) == -(7**200_000)


def nested(levels: int, code: int | None = None) -> bytes:
    payload = b"\xc0"
    for _ in range(levels):
        payload = b"\x91" + payload if code is None else packb(Ext(code, b"\x91" + payload))
    return payload


def mixed(levels: int) -> bytes:
    payload = b"\xc0"
    for _ in range(levels):
        payload = b"\x91" * 900 + packb(Ext(TUPLE, b"\x91" + payload))
    return payload


DEEP = {
    "arrays": nested(65),
    "many arrays": nested(100_000),
    "maps": b"\x81\xa1a" * 65 + b"\xc0",
    "many maps": b"\x81\xa1a" * 100_000 + b"\xc0",
    "tuples": nested(65, TUPLE),
    "many tuples": nested(2000, TUPLE),
    "sets": nested(300, Code.FROZENSET),
    "arrays in tuples in arrays": mixed(60),
    "behind a text that looks like arrays": packb(["\x9f" * 100, 1])[:-1] + nested(64),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_refused_before_parsing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ormsgpack, "unpackb", None)
    error = refusal(UNSIGNED, unsigned(DEEP[name]))
    assert (error.reason, str(error)) == (Reason.BAD_DATA, "nested deeper than 64 levels")


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        # The tuple ends early; what follows in its body, read as the next item, would swallow the deep part.
        (b"\x92" + packb(Ext(TUPLE, b"\x90" + b"\xc6\x00\x00\x10\x00")) + b"\x91" * 500, "nested deeper"),
        # The tuple's array promises more than its body has.
        (b"\x92" + packb(Ext(TUPLE, b"\x93\x01")) + b"\x91" * 500, "does not end where it should"),
        (b"\x92" + packb(Ext(TUPLE, b"\xdc")) + b"\x91" * 500, "does not end where it should"),
    ],
)
def test_depth_cannot_be_hidden_behind_an_extension(hidden: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ormsgpack, "unpackb", None)
    assert words in str(refusal(UNSIGNED, unsigned(hidden)))


def test_deep_nesting_does_no_harm_to_a_thread_with_a_small_stack() -> None:
    refused: list[str] = []
    frames = [unsigned(payload) for payload in DEEP.values()]
    before = threading.stack_size(128 * 1024)
    try:
        thread = threading.Thread(target=lambda: refused.extend(str(refusal(UNSIGNED, frame)) for frame in frames))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert refused == ["nested deeper than 64 levels"] * len(DEEP)


def test_millions_of_tiny_containers_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 4_000_000
    packed = zlib.compress(b"\xdd" + count.to_bytes(4) + b"\x80" * count)
    monkeypatch.setattr(ormsgpack, "unpackb", None)
    error = refusal(Codec(max_ratio=10_000), unsigned(packed, COMPRESSED))
    assert (error.reason, str(error)) == (Reason.TOO_LARGE, "holds more than 1,000,000 values")


M = sys.hash_info.modulus
COLLIDING = {
    # With a hundred times as many, which a frame has room for, a set would take hours to build.
    "all": [n * M for n in range(10_000)],
    "every second": [n * M if n % 2 else n for n in range(10_000)],
    "groups of a hundred": [n % 100 + n // 100 * M for n in range(10_000)],
    "a few among many": [*range(1, 10_000), *(n * M for n in range(500))],
}


@pytest.mark.parametrize("name", COLLIDING)
@pytest.mark.parametrize("code", [Code.SET, Code.FROZENSET, Code.DICT])
def test_keys_chosen_to_collide_are_refused(code: int, name: str) -> None:
    body = [Ext(Code.INT, key.to_bytes(12)) for key in COLLIDING[name]]
    items = [part for key in body for part in (key, None)] if code == Code.DICT else body
    assert "same hash" in str(refusal(UNSIGNED, unsigned(packb(Ext(code, packb(items))))))


def test_a_few_keys_that_collide_by_chance_are_no_harm() -> None:
    value = {n: n for n in (*range(1, 500), *(n * M for n in range(50)))}
    assert UNSIGNED.loads(UNSIGNED.dumps(value, JOB), JOB) == value


def in_tuples(levels: int, size: int) -> Any:
    value: Any = b"\xff" * size
    for _ in range(levels):
        value = (value,)
    return value


def test_what_each_tuple_around_it_would_copy_is_refused_before_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = packb(b"\xff" * 15 * 2**20)
    for _ in range(5):
        payload = packb(Ext(TUPLE, b"\x91" + payload))
    monkeypatch.setattr(ormsgpack, "unpackb", None)
    error = refusal(Codec(max_ratio=10_000), unsigned(zlib.compress(payload), COMPRESSED))
    assert (error.reason, "in one another of over 67,108,864 bytes" in str(error)) == (Reason.TOO_LARGE, True)


@pytest.mark.parametrize("keyring", [KEYRING, None], ids=["signed", "unsigned"])
def test_what_can_be_written_within_tuples_can_be_read(keyring: Keyring | None) -> None:
    codec = Codec(keyring, max_ratio=2000)
    for levels, size in [(4, 15 * 2**20), (60, 2**20)]:
        value = in_tuples(levels, size)
        assert codec.loads(codec.dumps(value, JOB), JOB) == value
    with pytest.raises(EncodeError, match="in one another of over"):
        codec.dumps(in_tuples(5, 15 * 2**20), JOB)


@pytest.mark.parametrize("payload", [b"\xff" * 8_000_000, b"\x92\xc6\0\x70\0\0" + bytes(0x700000), b"\xdd" * 8_000_000])
@pytest.mark.parametrize("keyring", [None, KEYRING], ids=["unsigned", "signed"])
def test_who_keeps_a_refusal_does_not_keep_what_was_unpacked(keyring: Keyring | None, payload: bytes) -> None:
    codec = Codec(keyring, max_ratio=10_000, max_unpacked=8_000_000)
    frame = seal(zlib.compress(payload + b"\xc1"), COMPRESSED, JOB, keyring)
    tracemalloc.start()
    try:
        kept = refusal(codec, frame)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept.__context__ is None
    assert held < 1_000_000


def test_many_ordinary_keys_are_no_collision() -> None:
    value = {n: n for n in range(50_000)}
    assert UNSIGNED.loads(UNSIGNED.dumps(value, JOB), JOB) == value


def test_running_out_of_memory_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*args: object, **kwargs: object) -> None:
        raise MemoryError

    frame = SIGNED.dumps([1], JOB)
    monkeypatch.setattr(ormsgpack, "unpackb", exhausted)
    assert refusal(SIGNED, frame).reason is Reason.TOO_LARGE


# -- thousands of frames -------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    {"args": (1, "two", 3.5), "kwargs": {"a": None, "b": [True, {"c": b"\x00\xff"}]}},
    [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Europe/Berlin")), Decimal("1.5")],
    {1: Color.RED, (2, 3): Money(Decimal(4)), "p": Point(1.0), UUID(int=5): {6, 7}, None: frozenset([2**80])},
    "text that is long enough to be compressed " * 100,
    [{"id": n, "name": f"item {n}", "tags": ("a", "b")} for n in range(60)],
]


def damaged(rng: random.Random, frame: bytes, other: bytes) -> bytes:
    """Return a frame with one of many kinds of damage; never the frame itself."""
    at = rng.randrange(len(frame))
    kinds: list[Callable[[], bytes]] = [
        lambda: frame[:at] + bytes([frame[at] ^ (1 << rng.randrange(8))]) + frame[at + 1 :],
        lambda: frame[:at] + rng.randbytes(rng.randint(1, 40)) + frame[at + rng.randint(0, 40) :],
        lambda: frame[:at],
        lambda: frame[:at] + frame[at + rng.randint(1, 20) :],
        lambda: frame + rng.randbytes(rng.randint(1, 50)),
        lambda: frame[:at] + other[at:],
        lambda: frame[:44] + other[44:],
        lambda: other[:44] + frame[44:],
        lambda: rng.randbytes(rng.randint(0, 200)),
        lambda: frame + b"\0" * 1024 * 1024,
        lambda: frame[:8] + rng.randbytes(36) + frame[44:],
    ]
    result = rng.choice(kinds)()
    return result if result != frame else frame + b"\0"


def hostile(trap: Path) -> list[bytes]:
    """Return whole frames that were made by others, each with something in it that would leave a trace."""
    attack = Ext(Code.PICKLE, pickle.dumps(Touch(trap)))
    payload = packb([attack])
    return [
        pickle.dumps(Touch(trap)),
        json.dumps({"func": "os:system"}).encode(),
        seal(payload, PICKLED, JOB, None),
        seal(payload, 0, JOB, None),
        seal(payload, PICKLED, JOB, Keyring([OTHER_KEY])),
        seal(payload, PICKLED, "job:2", KEYRING),
        seal(zlib.compress(b"a" * 10**7), COMPRESSED, JOB, Keyring([OTHER_KEY])),
        seal(nested(900), 0, JOB, None),
    ]


def test_ten_thousand_bad_frames_are_refused_and_none_is_executed(tmp_path: Path) -> None:
    trap, rng = tmp_path / "touched", random.Random(20261115)
    codec = Codec(KEYRING, allow_pickle=True)
    values = [*VALUES, Plain([1, 2])]
    frames = [codec.dumps(value, f"job:{pick}") for pick, value in enumerate(values)]
    foreign = hostile(trap)
    reasons = set()
    for number in range(10_000):
        pick = rng.randrange(len(frames))
        kind = number % 10
        if kind == 0:
            reasons.add(refusal(codec, rng.choice(foreign)).reason)
        elif kind == 1:
            reasons.add(refusal(codec, frames[pick], f"job:{rng.randint(100, 10**6)}").reason)
        elif kind == 2:
            assert codec.loads(frames[pick], f"job:{pick}") == values[pick]
        else:
            reasons.add(refusal(codec, damaged(rng, frames[pick], frames[pick - 1]), f"job:{pick}").reason)
    assert not trap.exists()
    assert reasons >= {
        Reason.TRUNCATED,
        Reason.TOO_LARGE,
        Reason.UNSIGNED,
        Reason.UNKNOWN_KEY,
        Reason.BAD_SIGNATURE,
        Reason.BAD_DATA,
    }


def payloads(rng: random.Random, trap: Path) -> Iterator[bytes]:
    """Yield damaged documents that carry a right checksum, so that the parser has to deal with them."""
    whole = [unsigned_payload(value) for value in VALUES] + [packb([Ext(Code.PICKLE, pickle.dumps(Touch(trap)))])]
    for number in range(10_000):
        payload = bytearray(rng.choice(whole))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(payload))
            if number % 3 == 0:
                payload[at] = rng.randrange(256)
            elif number % 3 == 1:
                payload[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
            else:
                payload[at] = rng.choice([0x81, 0x91, 0xC7, 0xC9, 0xD4, 0xD8, 0xDC, 0xDD, 0xDF, 1, 2, 4, 5, 16, 19, 32])
            payload = payload or bytearray(b"\xc7")
        yield bytes(payload)


def unsigned_payload(value: Any) -> bytes:
    return Codec(types=[Color, Money, Point], compress_above=10**6).dumps(value, JOB)[12:]


def test_ten_thousand_forged_documents_give_a_value_or_a_refusal_and_none_is_executed(tmp_path: Path) -> None:
    trap, rng = tmp_path / "touched", random.Random(20261116)
    outcomes = {"value": 0, "refusal": 0}
    for payload in payloads(rng, trap):
        try:
            UNSIGNED.loads(unsigned(payload), JOB)
        except FrameError:
            outcomes["refusal"] += 1
        else:
            outcomes["value"] += 1
    assert not trap.exists()
    assert min(outcomes.values()) > 1000  # both ways were really taken
