"""Put payloads into frames, with a header and a signature or a checksum, and compress them within bounds.

```
magic 2 | version 1 | flags 1 | payload size 4 | signed:   key id 4, HMAC-SHA-256 32 | payload
                                               | unsigned: CRC-32 4                  |
```

The signature covers a domain text, the name of the app and the context, each with its length, then the header before
the signature, and the payload.
The checksum of an unsigned frame covers the header and the payload, but not the context. It only detects accidents:
anybody who can write bytes can write a checksum.
"""

from __future__ import annotations

import hmac
import zlib
from struct import Struct
from typing import Final

from mainspring.codec.errors import FrameError, Reason
from mainspring.codec.keyring import KEY_ID_BYTES, Keyring

__all__ = ["COMPRESSED", "PICKLED", "SIGNED", "Scope", "compress", "decompress", "open_frame", "seal"]

COMPRESSED: Final = 1
SIGNED: Final = 2
PICKLED: Final = 4
_FLAGS: Final = COMPRESSED | SIGNED | PICKLED

_MAGIC: Final = b"\xa7M"
_VERSION: Final = 1
_DOMAIN: Final = b"mainspring frame 2\0"
_HEAD: Final = Struct(">2sBBI")
_MAC_SIZE: Final = 32
_MAC_AT: Final = _HEAD.size + KEY_ID_BYTES
_SIGNED_BODY: Final = _MAC_AT + _MAC_SIZE
_CRC_SIZE: Final = 4
_UNSIGNED_BODY: Final = _HEAD.size + _CRC_SIZE
_ZLIB_LEVEL: Final = 1
_PIECE_BYTES: Final = 6 * 1024 * 1024
"""Decompress this many bytes at once."""


class Scope:
    """The app for which frames are signed, and the common start of its signed messages."""

    __slots__ = ("app", "prefix")

    def __init__(self, app: str = "mainspring") -> None:
        name = app.encode("utf-8", "surrogatepass")
        self.app, self.prefix = app, b"".join((_DOMAIN, len(name).to_bytes(4), name))


_USUAL: Final = Scope()


def seal(payload: bytes, flags: int, context: str, keyring: Keyring | None, scope: Scope = _USUAL) -> bytes:
    """Put a payload into a frame, signed for `context` if there is a keyring."""
    if keyring is None:
        head = _HEAD.pack(_MAGIC, _VERSION, flags, len(payload))
        return b"".join((head, _checksum(head, payload), payload))
    head = _HEAD.pack(_MAGIC, _VERSION, flags | SIGNED, len(payload)) + keyring.signing_id
    # Users choose ids: a lone surrogate in an id must not prevent signing.
    where = context.encode("utf-8", "surrogatepass")
    signature = keyring.sign(keyring.signing_id, (scope.prefix, len(where).to_bytes(4), where, head, payload))
    assert signature is not None
    return b"".join((head, signature, payload))


def open_frame(frame: bytes, context: str, keyring: Keyring | None, scope: Scope = _USUAL) -> tuple[int, bytes]:
    """Check the signature or checksum of a frame; return its flags and payload."""
    if len(frame) < _HEAD.size:
        raise _wrong_head(frame)
    magic, version, flags, size = _HEAD.unpack_from(frame)
    body = _SIGNED_BODY if flags & SIGNED else _UNSIGNED_BODY
    if magic != _MAGIC or len(frame) != body + size:
        raise _wrong_head(frame)
    # Every version has the same header and signature, so this can distinguish a newer frame from a damaged one.
    strange = version != _VERSION or flags & ~_FLAGS
    payload = frame[body:]
    if keyring is None:
        if flags & SIGNED:
            key_id = frame[_HEAD.size : _MAC_AT].hex()
            raise FrameError(Reason.UNKNOWN_KEY, f"signed with key {key_id}, and no key is set here; add that key")
        if _checksum(frame[: _HEAD.size], payload) != frame[_HEAD.size : body]:
            raise FrameError(Reason.BAD_DATA, "damaged: the checksum does not fit the contents")
        if strange:
            raise _too_new(version, flags)
        return flags, payload
    if not flags & SIGNED:
        raise FrameError(Reason.UNSIGNED, "not signed, but with a key set only signed frames are read")
    head = frame[:_MAC_AT]
    where = context.encode("utf-8", "surrogatepass")
    signature = keyring.sign(head[_HEAD.size :], (scope.prefix, len(where).to_bytes(4), where, head, payload))
    if signature is None:
        known = ", ".join(key_id.hex() for key_id in keyring.ids)
        raise FrameError(
            Reason.UNKNOWN_KEY,
            f"signed with key {head[_HEAD.size :].hex()}, which is not among the keys here ({known}); add that key",
        )
    if not hmac.compare_digest(signature, frame[_MAC_AT:body]):
        raise FrameError(
            Reason.BAD_SIGNATURE,
            f"the signature does not fit: altered, or not made for {_shown(context)} of the app {scope.app!r}",
        )
    if strange:
        raise _too_new(version, flags)
    return flags, payload


def _wrong_head(frame: bytes) -> FrameError:
    """Return the error for a frame whose start or size is wrong."""
    if len(frame) < _HEAD.size and _MAGIC.startswith(frame[:2]):
        return FrameError(Reason.TRUNCATED, f"cut short: {len(frame)} bytes are less than a header")
    if frame[:2] != _MAGIC or len(frame) < _HEAD.size:
        return FrameError(Reason.BAD_DATA, "not a frame of mainspring")
    _, _, flags, size = _HEAD.unpack_from(frame)
    whole = size + (_SIGNED_BODY if flags & SIGNED else _UNSIGNED_BODY)
    if len(frame) < whole:
        return FrameError(Reason.TRUNCATED, f"cut short: {len(frame):,} bytes are left of {whole:,}")
    return FrameError(Reason.BAD_DATA, f"{len(frame) - whole:,} bytes too long")


def _too_new(version: int, flags: int) -> FrameError:
    return FrameError(
        Reason.UNKNOWN_VERSION,
        f"of version {version} with flags {flags:#04x}, and only version {_VERSION} can be read here; it comes from a "
        "newer mainspring",
    )


def _checksum(head: bytes, payload: bytes) -> bytes:
    return zlib.crc32(payload, zlib.crc32(head)).to_bytes(_CRC_SIZE)


def _shown(context: str) -> str:
    return repr(context if len(context) <= 80 else context[:77] + "...")


def compress(payload: bytes, max_ratio: int) -> bytes:
    """Compress a payload, but not beyond `max_ratio`, at which a reader refuses it as a decompression bomb."""
    packed = zlib.compress(payload, _ZLIB_LEVEL)
    if len(packed) * max_ratio >= len(payload):
        return packed
    # A flush adds at least five bytes, so a flush every 4 * max_ratio bytes keeps the ratio under its limit.
    step = 4 * max_ratio
    stream = zlib.compressobj(_ZLIB_LEVEL)
    parts = [
        stream.compress(payload[at : at + step]) + stream.flush(zlib.Z_SYNC_FLUSH)
        for at in range(0, len(payload), step)
    ]
    return b"".join(parts) + stream.flush()


def decompress(packed: bytes, max_unpacked: int, max_ratio: int) -> bytes:
    """Decompress a payload; stop at the first byte above a limit."""
    limit = min(max_unpacked, len(packed) * max_ratio)
    stream = zlib.decompressobj()
    try:
        payload = stream.decompress(packed, limit + 1 if limit < _PIECE_BYTES else _PIECE_BYTES)
        size = len(payload)
        if not stream.eof and size <= limit:
            # Decompress in pieces: the decompressor copies truncated output once more before we can refuse it.
            pieces = [payload]
            while not stream.eof and size <= limit and pieces[-1]:
                pieces.append(stream.decompress(stream.unconsumed_tail, min(_PIECE_BYTES, limit + 1 - size)))
                size += len(pieces[-1])
            payload = b"".join(pieces) if size <= limit else b""
    except zlib.error as error:
        raise FrameError(Reason.BAD_DATA, f"cannot be decompressed: {error}") from None
    if size > limit:
        named = f"max_unpacked={max_unpacked:,}" if limit == max_unpacked else f"max_ratio={max_ratio:,}"
        raise FrameError(
            Reason.TOO_LARGE, f"{len(packed):,} bytes decompress to more than {limit:,}, the limit of {named}"
        )
    if not stream.eof or stream.unused_data:
        raise FrameError(Reason.BAD_DATA, "cannot be decompressed: the compressed data does not end where it should")
    return payload
