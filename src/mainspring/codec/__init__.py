"""Turn objects into bytes and back: MessagePack, compression, signatures, and pickle if it is allowed.

A reader checks the size, the header and the signature of a frame, then decompresses it within bounds, and only then
parses it. The first step that fails ends the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from mainspring.codec.errors import EncodeError, FrameError, Reason
from mainspring.codec.frame import COMPRESSED, PICKLED, Scope, compress, decompress, open_frame, seal
from mainspring.codec.keyring import Keyring
from mainspring.codec.layouts import full_name
from mainspring.codec.pack import Packer, pack_plain
from mainspring.codec.scan import check_bounds
from mainspring.codec.types import TypeBook
from mainspring.codec.unpack import NOT_PLAIN, Unpacker, unpack_plain
from mainspring.codec.values import MAX_VALUES
from mainspring.errors import ConfigurationError, RunTimeout

__all__ = ["Codec", "EncodeError", "FrameError", "Keyring", "Reason", "TypeBook"]

AnyType = TypeVar("AnyType", bound=type)

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Codec:
    """A converter of values into frames and back.

    With a keyring, the codec signs every frame for its context and for the app called `name`, and reads only such
    frames. Without one, frames are unsigned: nothing protects their contents or ties them to their context, so they
    restore only plain values and registered types.
    """

    __slots__ = (
        "_book",
        "_keyring",
        "_scope",
        "allow_pickle",
        "compress_above",
        "max_frame",
        "max_ratio",
        "max_unpacked",
        "signed",
    )

    def __init__(
        self,
        keyring: Keyring | None = None,
        *,
        name: str = "mainspring",
        allow_pickle: bool = False,
        types: Iterable[type] | TypeBook = (),
        max_frame: int = MIB,
        max_unpacked: int = 16 * MIB,
        max_ratio: int = 100,
        compress_above: int = 2 * KIB,
    ) -> None:
        if allow_pickle and keyring is None:
            raise ConfigurationError(
                "allow_pickle=True needs a key: unpickling what anybody may have written runs their code"
            )
        for limit, value in [("max_frame", max_frame), ("max_unpacked", max_unpacked), ("max_ratio", max_ratio)]:
            if value < 1:
                raise ConfigurationError(f"{limit} is {value}, but has to be at least 1")
        self._keyring, self._scope = keyring, Scope(name)
        self.signed = keyring is not None
        """Whether frames are signed."""
        self._book = TypeBook(types, imports=keyring is not None)
        self.allow_pickle = allow_pickle
        self.max_frame, self.max_unpacked, self.max_ratio = max_frame, max_unpacked, max_ratio
        self.compress_above = compress_above

    def register(
        self, cls: AnyType, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None
    ) -> AnyType:
        """Allow unsigned frames to restore a type; works as a decorator.

        An Enum, dataclass, NamedTuple, attrs class or pydantic model needs no more. For any other type, `dump` turns an
        object into plain data, and `load` turns the data back.
        """
        self._book.register(cls, dump, load)
        return cls

    def dumps(self, value: Any, context: str, *, inputs: int = 0) -> bytes:
        """Return a value as a frame that is valid for `context`, such as `job:<id>` or `run:<id>`.

        The value may hold `inputs` placeholders for the results of runs.
        """
        if not isinstance(context, str):
            raise _wrong_context(context)
        flags, payload = 0, pack_plain(value)
        if payload is None:
            packer = Packer(self._book, pickles=self.allow_pickle, inputs=inputs)
            payload = packer.pack(value)
            flags = PICKLED if packer.pickled else 0
        size = len(payload)
        if size > self.max_unpacked or size > MAX_VALUES:  # a value takes at least one byte
            self._check_size(value, payload)
        if size > self.compress_above:
            packed = compress(payload, self.max_ratio)
            if len(packed) < size:
                payload, flags = packed, flags | COMPRESSED
        frame = seal(payload, flags, context, self._keyring, self._scope)
        if len(frame) > self.max_frame:
            problem = (
                f"takes {len(frame):,} bytes, more than max_frame={self.max_frame:,}; store it elsewhere and pass where"
            )
            raise EncodeError("", full_name(type(value)), problem)
        return frame

    def _check_size(self, value: Any, payload: bytes) -> None:
        """Refuse a payload that readers with the same limits would refuse."""
        if len(payload) > self.max_unpacked:
            problem = f"takes {len(payload):,} bytes before compression, more than max_unpacked={self.max_unpacked:,}"
            raise EncodeError("", full_name(type(value)), problem)
        try:
            check_bounds(payload)
        except FrameError as problem:
            raise EncodeError("", full_name(type(value)), str(problem)) from None

    def loads(self, frame: bytes | bytearray | memoryview, context: str) -> Any:
        """Return the value in a frame of `context`; raise FrameError if anything is wrong with the frame."""
        if not isinstance(context, str):
            raise _wrong_context(context)
        try:
            return self._loads(frame, context)
        except RunTimeout:  # a watchdog raises it in this thread, so the frame is not the cause
            raise
        except FrameError as error:
            refusal = error
        except SystemExit as error:
            problem = f"the module it names exits when it is imported: {error!r}"
            refusal = FrameError(Reason.MISSING_CODE, problem)
        except MemoryError:
            refusal = FrameError(Reason.TOO_LARGE, "there is not enough memory here to restore it")
        except Exception as error:
            refusal = FrameError(Reason.BAD_DATA, f"cannot be restored: {type(error).__name__}: {_text(error)}")
        # Drop the traceback: its frames would keep the unpacked values alive as long as the error.
        refusal.__context__ = None
        raise refusal.with_traceback(None)

    def _loads(self, frame: bytes | bytearray | memoryview, context: str) -> Any:
        if type(frame) is not bytes:
            if not isinstance(frame, bytes | bytearray | memoryview):
                raise FrameError(Reason.BAD_DATA, f"a frame is bytes, not {type(frame).__name__}")
            frame = self._as_bytes(frame)
        if len(frame) > self.max_frame:
            raise self._too_large(len(frame))
        flags, payload = open_frame(frame, context, self._keyring, self._scope)
        if flags & PICKLED and not self.allow_pickle:
            raise FrameError(Reason.NOT_ALLOWED, "holds a pickle, which needs allow_pickle=True and a key to be read")
        if flags & COMPRESSED:
            payload = decompress(payload, self.max_unpacked, self.max_ratio)
        elif len(payload) > self.max_unpacked:
            raise FrameError(
                Reason.TOO_LARGE, f"{len(payload):,} bytes unpacked are more than max_unpacked={self.max_unpacked:,}"
            )
        if self._keyring is None:
            # Only here: the writer of a signed frame has checked the limits.
            check_bounds(payload)
        value = unpack_plain(payload)
        if value is not NOT_PLAIN:
            return value
        unpickles = self.allow_pickle and bool(flags & PICKLED)
        return Unpacker(self._book, signed=self._keyring is not None, unpickles=unpickles).unpack(payload)

    def _as_bytes(self, frame: bytearray | memoryview | bytes) -> bytes:
        """Copy a frame, unless it is too large."""
        size = frame.nbytes if isinstance(frame, memoryview) else len(frame)
        if size > self.max_frame:
            raise self._too_large(size)
        return bytes(frame)

    def _too_large(self, size: int) -> FrameError:
        return FrameError(Reason.TOO_LARGE, f"the frame has {size:,} bytes, more than max_frame={self.max_frame:,}")


def _text(error: Exception) -> str:
    """Return what an error of a user's hook says; its own text may raise, too."""
    try:
        return str(error)[:200]
    except RunTimeout:
        raise
    except Exception:
        return "it cannot be shown"


def _wrong_context(context: object) -> TypeError:
    return TypeError(f"the context is text such as 'job:<id>', not {type(context).__name__}")
