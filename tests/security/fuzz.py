"""Frames forged layer by layer, put to readers with and without keys; what must never happen is a `Fault`.

`python -m tests.security.fuzz [--cases N] [--first N] [--processes N]` judges many, each known by its number;
`python -m tests.security.fuzz --atheris SECONDS` lets coverage lead the way, where atheris is installed.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import multiprocessing
import os
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from mainspring.codec import Codec, FrameError, Keyring, Reason
from mainspring.codec.frame import COMPRESSED, PICKLED, seal
from tests.codec.shapes import JOB, KEYRING, OTHER_KEY, Access, Color, Money, Point, exact
from tests.security.documents import Writer

TYPES: Final = (Color, Access, Money, Point)
SLOW: Final = 1.0
"""Seconds of CPU that one frame may take."""
_BEFORE_PARSING: Final = frozenset(Reason) - {Reason.NOT_ALLOWED, Reason.MISSING_CODE}
_STRANGERS: Final = Keyring([OTHER_KEY])
_SMALL_BOMB: Final = zlib.compress(bytes(3 * 1024 * 1024))

Rng = random.Random
Change = Callable[[Rng, bytes], bytes]


class Fault(AssertionError):
    """A frame did what no frame may do."""


class Case(NamedTuple):
    """A forged frame: what was done at each layer, and whether it is one that a holder of the key has signed."""

    layers: tuple[str, ...]
    frame: bytes
    genuine: bool


# -- the layers --------------------------------------------------------------------------------------------------


def _flip(rng: Rng, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _splice(rng: Rng, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.randint(0, 12)) + data[at + rng.randint(0, 12) :]


def _repeat(rng: Rng, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at : at + rng.randint(1, 30)] * rng.randint(2, 20) + data[at:]


DAMAGE: Final[dict[str, Change]] = {
    "flipped": _flip,
    "spliced": _splice,
    "repeated": _repeat,
    "cut": lambda rng, data: data[: rng.randrange(len(data))],
    "longer": lambda rng, data: data + rng.randbytes(rng.randint(1, 50)),
}

# Flags to be set, and what becomes of the payload.
SQUEEZES: Final[dict[str, tuple[int, Change]]] = {
    "plain": (0, lambda rng, data: data),
    "compressed": (COMPRESSED, lambda rng, data: zlib.compress(data, rng.randint(0, 9))),
    "compressed in secret": (0, lambda rng, data: zlib.compress(data)),
    "not compressed": (COMPRESSED, lambda rng, data: data),
    "compressed twice": (COMPRESSED, lambda rng, data: zlib.compress(zlib.compress(data))),
    "gzip": (COMPRESSED, lambda rng, data: gzip.compress(data, mtime=0)),
    "raw deflate": (COMPRESSED, lambda rng, data: zlib.compress(data)[2:-4]),
    "with a dictionary": (COMPRESSED, lambda rng, data: _with_dictionary(data)),
    "a damaged stream": (COMPRESSED, lambda rng, data: _damaged(rng, zlib.compress(data))),
    "a bomb": (COMPRESSED, lambda rng, data: _SMALL_BOMB),
    "a said pickle": (PICKLED, lambda rng, data: data),
}


def _with_dictionary(data: bytes) -> bytes:
    stream = zlib.compressobj(zdict=b"a dictionary that the reader does not have")
    return stream.compress(data) + stream.flush()


def _damaged(rng: Rng, data: bytes) -> bytes:
    return DAMAGE[rng.choice(list(DAMAGE))](rng, data)


def _put(at: int, size: int, rng: Rng, frame: bytes) -> bytes:
    return frame[:at] + rng.randbytes(size) + frame[at + size :]


def _resized(rng: Rng, frame: bytes) -> bytes:
    """Return a frame whose header gives another size: near the right one, or one at an edge."""
    right = int.from_bytes(frame[4:8])
    size = rng.choice([0, right - 1, right + 1, right + rng.randint(-40, 40), 2**31 - 1, 2**31, 2**32 - 1])
    return frame[:4] + max(0, size).to_bytes(4) + frame[8:]


# A signed frame has its key id at 8 and its signature at 12 to 44, an unsigned one its checksum at 8 to 12.
HEADERS: Final[dict[str, Change]] = {
    "magic": partial(_put, 0, 2),
    "version": partial(_put, 2, 1),
    "flags": lambda rng, frame: frame[:3] + bytes([rng.choice([*range(8), rng.randrange(256)])]) + frame[4:],
    "size": _resized,
    "key id or checksum": partial(_put, 8, 4),
    "another key's id": lambda rng, frame: frame[:8] + _STRANGERS.signing_id + frame[12:],
    "signature": partial(_put, 12, 32),
    "signature cut short": lambda rng, frame: frame[:12] + frame[12 + rng.randint(1, 32) :],
    "no signature": lambda rng, frame: frame[:12] + bytes(32) + frame[44:],
}

SEALS: Final[dict[str, tuple[Keyring | None, str]]] = {
    "unsigned": (None, JOB),
    "signed": (KEYRING, JOB),
    "signed by a stranger": (_STRANGERS, JOB),
    "signed for another job": (KEYRING, "job:2"),
}


def forge(number: int, trap: Path) -> Case:
    """Make the frame of a number: the same one every time."""
    rng = random.Random(number)
    sealed_as = rng.choice(["unsigned", "unsigned", "unsigned", *SEALS])
    # What a holder of the key signs may be imported, so that only frames of others name the module that must not be.
    writer = Writer(rng, trap, traps=sealed_as != "signed")
    kind = rng.choice(["whole", "damaged", "grown", "grown"])
    payload = writer.grown() if kind == "grown" else writer.whole()
    if kind == "damaged":
        for _ in range(rng.randint(1, 4)):
            payload = _damaged(rng, payload or b"\xc0")
    squeeze = rng.choice(["plain"] * 10 + ["compressed"] * 5 + list(SQUEEZES))
    flags, change = SQUEEZES[squeeze]
    keyring, context = SEALS[sealed_as]
    frame = sealed = seal(change(rng, payload or b"\xc0"), flags, context, keyring)
    touched = rng.choice(["untouched"] * 12 + list(HEADERS) + list(DAMAGE))
    if touched != "untouched":
        frame = (HEADERS.get(touched) or DAMAGE[touched])(rng, frame)
    genuine = sealed_as == "signed" and frame == sealed
    return Case((kind, squeeze, sealed_as, touched), frame, genuine)


# -- the judge ---------------------------------------------------------------------------------------------------


class Judge:
    """Has frames read by a node without a key, one with a key, and one that may unpickle."""

    def __init__(self, folder: Path) -> None:
        self.trap = folder / "sprung"
        (folder / "fuzz_trap.py").write_text(f"open({str(self.trap)!r}, 'w').close()\nclass Color: pass\n")
        sys.path.insert(0, str(folder))
        self.seen: Counter[str] = Counter()
        self._keyless = Codec(types=TYPES)
        self._keyed, self._pickling = Codec(KEYRING), Codec(KEYRING, allow_pickle=True)
        self._looks = 0

    def close(self) -> None:
        """Take the trap out of the path."""
        sys.path.remove(str(self.trap.parent))
        sys.modules.pop("fuzz_trap", None)

    def __call__(self, case: Case) -> None:
        """Raise a Fault if a reader does with the frame what it must not."""
        self.seen.update(case.layers)
        with self._counting():
            self._read("keyless", self._keyless, case, trusted=False)
            self._read("keyed", self._keyed, case, trusted=case.genuine)
            # Whatever the holder of a key has pickled is executed; that is what allow_pickle means.
            if not case.genuine:
                self._read("pickling", self._pickling, case, trusted=False)
        if self.trap.exists() or "fuzz_trap" in sys.modules:
            raise Fault("something that the frame names was executed or imported")

    def _read(self, who: str, codec: Codec, case: Case, *, trusted: bool) -> None:
        self._looks = 0
        try:
            value = codec.loads(case.frame, JOB)
        except FrameError as error:
            self.seen[f"{who}: {error.reason}"] += 1
            if codec.signed and not trusted and (self._looks or error.reason not in _BEFORE_PARSING):
                raise Fault(f"the {who} reader looked into what nobody has signed") from error
            return
        except BaseException as error:
            raise Fault(f"the {who} reader raised {type(error).__name__}: {error}") from error
        self.seen[f"{who}: a value"] += 1
        if codec.signed and not trusted:
            raise Fault(f"the {who} reader accepted what nobody has signed")
        again = codec.loads(codec.dumps(value, JOB), JOB)
        if exact(again) != exact(value):
            raise Fault(f"the {who} reader made {exact(value)[:200]} of it, and of that {exact(again)[:200]}")

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count each look into a payload."""
        from mainspring import codec

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def count(*args: Any, **kwargs: Any) -> Any:
                self._looks += 1
                return call(*args, **kwargs)

            return count

        names = ("decompress", "check_bounds", "unpack_plain", "Unpacker")
        patches: dict[str, Any] = {name: counted(getattr(codec, name)) for name in names}
        with mock.patch.multiple(codec, **patches):
            yield


def judge_slice(numbers: range) -> tuple[Counter[str], float, list[str]]:
    """Judge the frames of some numbers: what was seen, the slowest in seconds of CPU, the faults."""
    faults: list[str] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(Path(folder))
        for number in numbers:
            case = forge(number, judge.trap)
            begun = time.process_time()
            try:
                judge(case)
            except Fault as fault:
                faults.append(f"frame {number}, {', '.join(case.layers)}: {fault}")
            taken = time.process_time() - begun
            if taken > SLOW:
                faults.append(f"frame {number}, {', '.join(case.layers)}: took {taken:.1f} s")
            slowest = max(slowest, taken)
        judge.close()
    return judge.seen, slowest, faults


# -- from the command line -----------------------------------------------------------------------------------------


def _led_by_coverage(seconds: int) -> None:
    atheris: Any = importlib.import_module("atheris")
    folder = Path(tempfile.mkdtemp(prefix="mainspring-fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(300):
        case = forge(number, folder / "sprung")
        if not case.genuine:
            (corpus / str(number)).write_bytes(b"\0" + case.frame)
        payload = Writer(random.Random(number), folder / "sprung", traps=True).grown()
        (corpus / f"{number}p").write_bytes(bytes([1 + number % 3]) + payload)
    judge = Judge(folder)

    def one(data: bytes) -> None:
        how, rest = data[0] % 4 if data else 0, data[1:]
        frames = {
            0: lambda: rest,
            1: lambda: seal(rest, 0, JOB, None),
            2: lambda: seal(zlib.compress(rest, 1), COMPRESSED, JOB, None),
            3: lambda: seal(rest, PICKLED, JOB, _STRANGERS),
        }
        judge(Case(("led",), frames[how](), False))

    atheris.instrument_all()
    options = [
        f"-max_total_time={seconds}",
        "-timeout=2",
        "-rss_limit_mb=1024",
        "-max_len=4096",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", str(corpus)], one)
    atheris.Fuzz()


def main() -> int:
    """Judge many frames, print what was seen, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--atheris", type=int, metavar="SECONDS")
    options = parser.parse_args()
    if options.atheris:
        _led_by_coverage(options.atheris)
    end = options.first + options.cases
    slices = [range(first, min(first + 2000, end)) for first in range(options.first, end, 2000)]
    seen: Counter[str] = Counter()
    slowest, faults = 0.0, 0
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for counts, longest, found in pool.imap_unordered(judge_slice, slices):
            seen += counts
            slowest, faults = max(slowest, longest), faults + len(found)
            print("\n".join(found), end="\n" if found else "", flush=True)
    for name, number in sorted(seen.items()):
        print(f"{number:>10,}  {name}")
    print(f"{options.cases:,} frames: {faults} faults; the slowest took {slowest:.3f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
