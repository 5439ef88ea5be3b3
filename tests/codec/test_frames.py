"""What is altered, moved, cut short or too large is refused before anything looks into it."""

from __future__ import annotations

import pickle
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import ormsgpack
import pytest

from mainspring.codec import Codec, EncodeError, FrameError, Keyring, Reason
from mainspring.codec import frame as frames
from mainspring.codec.frame import COMPRESSED, decompress, seal
from tests.codec.shapes import JOB, KEY, KEYRING, Color

MIB = 1024 * 1024
SMALL = {"args": (1, "two"), "kwargs": {"n": 3.5}}
LARGE = {"text": "all work and no play " * 200}


def refusal(codec: Codec, frame: bytes | bytearray, context: str = JOB) -> Reason:
    with pytest.raises(FrameError) as caught:
        codec.loads(frame, context)
    return caught.value.reason


class Calls:
    """Counts how often the decompressor and the parser are called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(ormsgpack, "unpackb", self.counting(ormsgpack.unpackb))
        monkeypatch.setattr(zlib, "decompressobj", self.counting(zlib.decompressobj))

    def counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return call(*args, **kwargs)

        return counted


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


CODECS = pytest.mark.parametrize("codec", [Codec(KEYRING), Codec()], ids=["signed", "unsigned"])
BOTH = pytest.mark.parametrize("value", [SMALL, LARGE], ids=["plain", "compressed"])


def flips(frame: bytes) -> Iterator[bytes]:
    for at in range(len(frame)):
        for bit in range(8):
            yield frame[:at] + bytes([frame[at] ^ (1 << bit)]) + frame[at + 1 :]


@CODECS
@BOTH
def test_every_flipped_bit_is_refused_before_parsing(codec: Codec, value: object, calls: Calls) -> None:
    frame = codec.dumps(value, JOB)
    for altered in flips(frame):
        refusal(codec, altered)
    assert calls.count == 0
    assert codec.loads(frame, JOB) == value
    assert calls.count > 0


@CODECS
def test_every_other_byte_in_every_place_is_refused_before_parsing(codec: Codec, calls: Calls) -> None:
    frame = codec.dumps("abc", JOB)
    for at in range(len(frame)):
        for byte in {*range(256)} - {frame[at]}:
            refusal(codec, frame[:at] + bytes([byte]) + frame[at + 1 :])
    assert calls.count == 0


@CODECS
@BOTH
def test_a_frame_cut_short_anywhere_is_refused_as_truncated(codec: Codec, value: object, calls: Calls) -> None:
    frame = codec.dumps(value, JOB)
    assert {refusal(codec, frame[:length]) for length in range(len(frame))} == {Reason.TRUNCATED}
    assert calls.count == 0


@CODECS
def test_a_frame_with_more_behind_it_is_refused(codec: Codec, calls: Calls) -> None:
    frame = codec.dumps(SMALL, JOB)
    assert refusal(codec, frame + b"\0") is Reason.BAD_DATA
    assert refusal(codec, frame + frame) is Reason.BAD_DATA
    assert calls.count == 0


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("job:1", "job:2"),
        ("job:1", "run:1"),
        ("job:1", "job:1 "),
        ("job:1", ""),
        ("", "job:1"),
        ("job:\xe9", "job:e\u0301"),
        ("job:\ud800", "job:?"),
    ],
)
def test_a_signed_frame_moved_to_another_context_is_refused(theirs: str, ours: str, calls: Calls) -> None:
    codec = Codec(KEYRING)
    frame = codec.dumps(SMALL, theirs)
    assert refusal(codec, frame, ours) is Reason.BAD_SIGNATURE
    assert calls.count == 0
    assert codec.loads(frame, theirs) == SMALL


def test_bytes_cannot_be_moved_between_context_and_frame() -> None:
    codec = Codec(KEYRING)
    frame = codec.dumps(SMALL, "job:1\xa7")
    for context in ("job:1", "job:1\xa7M", "ob:1\xa7"):
        assert refusal(codec, frame, context) is Reason.BAD_SIGNATURE


def test_an_unsigned_frame_is_not_tied_to_its_context() -> None:
    codec = Codec()
    assert codec.loads(codec.dumps(SMALL, "job:1"), "job:2") == SMALL


def test_a_context_that_is_no_text_is_the_callers_mistake() -> None:
    codec = Codec(KEYRING)
    with pytest.raises(TypeError, match="context is text"):
        codec.loads(codec.dumps(1, JOB), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="context is text"):
        codec.dumps(1, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("foreign", [b"MS\x01\x00", b"{}", b"\x80\x05N.", b"\0" * 100, pickle.dumps(list(range(50)))])
@CODECS
def test_bytes_of_another_kind_are_not_a_frame(codec: Codec, foreign: bytes) -> None:
    assert refusal(codec, foreign) is Reason.BAD_DATA


@pytest.mark.parametrize("thing", [None, "text", 5, ["list"]])
def test_what_is_no_bytes_is_refused(thing: object) -> None:
    assert refusal(Codec(), thing) is Reason.BAD_DATA  # type: ignore[arg-type]


@CODECS
def test_a_frame_of_a_newer_version_or_with_new_flags_is_refused_as_such(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = KEYRING if codec.signed else None
    assert refusal(codec, frames.seal(b"\x00", 0x40, JOB, keyring)) is Reason.UNKNOWN_VERSION
    with monkeypatch.context() as newer:
        newer.setattr(frames, "_VERSION", 2)
        frame = codec.dumps(SMALL, JOB)
    assert refusal(codec, frame) is Reason.UNKNOWN_VERSION


@CODECS
def test_a_frame_whose_version_or_flags_were_altered_is_no_newer_one(codec: Codec) -> None:
    frame = bytearray(codec.dumps(SMALL, JOB))
    frame[2] = 2
    altered = Reason.BAD_SIGNATURE if codec.signed else Reason.BAD_DATA
    assert refusal(codec, frame) is altered
    frame[2], frame[3] = 1, frame[3] | 0x40
    assert refusal(codec, frame) is altered


def test_a_refusal_survives_pickling() -> None:
    error = FrameError(Reason.TOO_LARGE, "too large, as it were")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.reason, str(copy)) == (FrameError, Reason.TOO_LARGE, "too large, as it were")


def test_a_frame_above_the_limit_is_refused_unread(calls: Calls) -> None:
    frame = Codec(KEYRING).dumps("x" * 1000, JOB)
    with pytest.raises(FrameError, match=rf"has {len(frame):,} bytes, more than max_frame=1,000") as caught:
        Codec(KEYRING, max_frame=1000).loads(frame, JOB)
    assert caught.value.reason is Reason.TOO_LARGE
    assert calls.count == 0


def test_a_value_above_the_limit_of_a_frame_is_refused_when_it_is_stored() -> None:
    noise = b"".join((3**n % 2**64).to_bytes(8) for n in range(3000))
    with pytest.raises(EncodeError, match=r"takes 24,\d+ bytes, more than max_frame=20,000"):
        Codec(KEYRING, max_frame=20_000).dumps(noise, JOB)


def test_a_value_above_the_limit_unpacked_is_refused_when_it_is_stored() -> None:
    with pytest.raises(EncodeError, match="takes 100,005 bytes before compression, more than max_unpacked=100,000"):
        Codec(max_unpacked=100_000).dumps("x" * 100_000, JOB)


def test_a_frame_above_the_limit_unpacked_is_refused_though_it_is_not_compressed() -> None:
    frame = Codec(compress_above=10**6).dumps("x" * 5000, JOB)
    assert refusal(Codec(max_unpacked=4000), frame) is Reason.TOO_LARGE


def test_more_values_than_the_limit_are_refused_when_they_are_stored() -> None:
    with pytest.raises(EncodeError, match="holds more than 1,000,000 values"):
        Codec().dumps([0] * 1_000_001, JOB)


@cache
def bomb(size: int) -> bytes:
    stream = zlib.compressobj(9)
    return stream.compress(b"\xdb" + (size - 5).to_bytes(4)) + stream.compress(b"a" * (size - 5)) + stream.flush()


@pytest.mark.parametrize("keyring", [None, KEYRING], ids=["unsigned", "signed"])
@pytest.mark.parametrize(("size", "limit"), [(10 * MIB, "max_ratio=100"), (100 * MIB, "max_unpacked=16,777,216")])
def test_a_bomb_is_refused_without_being_unpacked(keyring: Keyring | None, size: int, limit: str, calls: Calls) -> None:
    codec = Codec(keyring, max_ratio=2000 if limit.startswith("max_unpacked") else 100)
    packed = bomb(size)
    frame = seal(packed, COMPRESSED, JOB, keyring)
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match=limit) as caught:
            codec.loads(frame, JOB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.reason is Reason.TOO_LARGE
    assert peak < (3 * MIB if size == 10 * MIB else 26 * MIB)
    assert calls.count == 1  # the decompressor, which was stopped


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"no zlib at all",
        zlib.compress(b"\xc0")[:-1],
        zlib.compress(b"\xc0") + b"more",
        zlib.compress(b"\xc0")[:-4] + b"\0\0\0\0",
    ],
)
@pytest.mark.parametrize("keyring", [None, KEYRING], ids=["unsigned", "signed"])
def test_damaged_compressed_data_is_refused(keyring: Keyring | None, packed: bytes) -> None:
    assert refusal(Codec(keyring), seal(packed, COMPRESSED, JOB, keyring)) is Reason.BAD_DATA


def test_pieces_come_together_up_to_the_limit_and_not_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.codec.frame._PIECE_BYTES", 10)
    for size in range(45):
        payload = bytes(range(size))
        packed = zlib.compress(payload)
        for limit in (size, size + 1, 10**6):
            assert decompress(packed, limit, 10**6) == payload
        for cut in range(len(packed)):
            with pytest.raises(FrameError, match="cannot be decompressed"):
                decompress(packed[:cut], 10**6, 10**6)
        if size:
            with pytest.raises(FrameError, match=f"more than {size - 1}, the limit of max_unpacked"):
                decompress(packed, size - 1, 10**6)


def test_frames_written_by_this_version_stay_readable() -> None:
    # Stored by users: if one of these fails, the frame's version has to change.
    signed = Codec(Keyring([KEY]))
    stored = bytes.fromhex(
        "a74d010200000031259dc3249817f07fbfe4a97ffeed50d77c0476f572e5ffdc0447903b173ed8ea9744ea4b82a161c70a01"
        "9201c705049202c40178a163c71c1074657374732e636f6465632e7368617065733a436f6c6f723d524544"
    )
    assert signed.loads(stored, JOB) == {"a": (1, {2: b"x"}), "c": Color.RED}
    stored = bytes.fromhex(
        "a74d0100000000227297bc3b97c0c3fbc70911400000000000000000cb3ff8000000000000a474657874d5039101"
    )
    assert Codec().loads(stored, JOB) == [None, True, -5, 2**70, 1.5, "text", frozenset([1])]
