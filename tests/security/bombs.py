"""A process that reads bombs and says how much it grew: itself, or as a worker on `REDIS_URL`, if that is given."""

from __future__ import annotations

import json
import sys
import time
import zlib
from pathlib import Path
from typing import Final

from ormsgpack import Ext, packb

from mainspring import Mainspring
from mainspring.codec import Codec, FrameError, Keyring
from mainspring.codec.frame import COMPRESSED, seal
from mainspring.codec.values import Code
from mainspring.core.run import Call, Run

MIB: Final = 1024 * 1024
KEYRING: Final = Keyring(["a key that the bomber has, too"])
LIMIT: Final = 30.0


def same(value: int) -> int:
    """Return the value."""
    return value


class Scale:
    """Tells by how much this process has been larger than it was when the scale was made, in MiB, at its largest."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what there is now
        self._before = self._peak()

    def growth(self) -> float:
        """Return the growth."""
        return self._peak() - self._before

    @staticmethod
    def _peak() -> float:
        # Not getrusage, which in a child begins with the size of its parent.
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024


def bomb(mib: int) -> bytes:
    """Return zeros that take so many MiB, compressed as well as zlib can, made without having them."""
    stream = zlib.compressobj(9)
    first, block = (stream.compress(bytes(MIB)) + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + block * (mib - 1) + stream.flush()


def in_tuples() -> bytes:
    """Return 15 MiB in 62 tuples, each of which the parser copies to look into it."""
    payload = packb(b"\xff" * (15 * MIB))
    for _ in range(62):
        payload = packb(Ext(Code.TUPLE, b"\x91" + payload))
    return zlib.compress(payload)


def read(codec: Codec, packed: bytes, keyring: Keyring | None = None) -> tuple[str, float]:
    """Return why a bomb was refused, and the growth."""
    frame = seal(packed, COMPRESSED, "run:x", keyring)
    scale = Scale()
    try:
        codec.loads(frame, "run:x")
    except FrameError as error:
        return error.reason, scale.growth()
    return "accepted", scale.growth()


def read_all() -> dict[str, tuple[str, float]]:
    """Have codecs read bombs; the last one has no limits, to show what the scale then says."""
    seen: dict[str, tuple[str, float]] = {}
    for who, keyring in (("unsigned", None), ("signed", KEYRING)):
        seen[f"10 MiB, {who}"] = read(Codec(keyring), bomb(10), keyring)
        seen[f"200 MiB, {who}"] = read(Codec(keyring), bomb(200), keyring)
        seen[f"200 MiB at any ratio, {who}"] = read(Codec(keyring, max_ratio=10**9), bomb(200), keyring)
        seen[f"1000 MiB, {who}"] = read(Codec(keyring), bomb(1000), keyring)
    large = Codec(max_frame=16 * MIB, max_ratio=10**9)
    seen["10 GiB in a large frame"] = read(large, bomb(10 * 1024))
    seen["tuples in tuples"] = read(Codec(max_ratio=2000), in_tuples())
    seen["200 MiB without limits"] = read(Codec(max_unpacked=10**9, max_ratio=10**9), bomb(200))
    return seen


def work(url: str) -> dict[str, tuple[str, float]]:
    """Have a worker without a key find bombs among its runs."""
    with Mainspring(url, name="bombed", timezone="UTC") as app:
        task = app.task(name="same")(same)
        app.start(work=True)
        assert [handle.result(timeout=LIMIT) for handle in app.enqueue_many([task.call(1)] * 20)] == [1] * 20
        now = app.now()
        frames = [seal(bomb(size), COMPRESSED, "", None) for size in (200, 1000)]
        scale = Scale()
        app.store.add_runs(
            [
                Run(id=f"bomb{number}", call=Call("same", frame=frame), created_at=now, run_at=now)
                for number, frame in enumerate(frames)
            ]
        )
        deadline = time.monotonic() + LIMIT
        while app.count(status="broken") < len(
            frames
        ):  # counted, since looking at them would be reading them here, too
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert task.enqueue(5).result(timeout=LIMIT) == 5
        growth = scale.growth()
        return {view.id: (f"{view.status}, {view.reason}", growth) for view in app.find(status="broken")}


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1]) if sys.argv[1:] else read_all()))
