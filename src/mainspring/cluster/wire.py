"""What a worker process and its sentinel say to each other, over a pipe of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec

from mainspring.run import Run

__all__ = ["CLAIMED", "DRAINING", "ENDED", "READY", "STOP", "STOP_RUNS", "STUCK", "Wire", "read"]

READY: Final = "ready"  # the worker has started
CLAIMED: Final = "claimed"  # [token, ids]: before anything of them is executed
ENDED: Final = "ended"  # ids: settled, or given back
STUCK: Final = "stuck"  # id: it did not end at its time-out
DRAINING: Final = "draining"  # why: the worker will end by itself
STOP: Final = "stop"  # to the worker: finish what runs, give back the rest, end
STOP_RUNS: Final = "stop runs"  # to the worker, ids: they are lost or to be cancelled

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def read(pipe: Connection) -> tuple[str, Any]:
    """Return the next message and what it carries."""
    word, what = _decode(pipe.recv_bytes())
    return word, what


class Wire:
    """One end of the pipe, for any thread; it is also the node's watcher."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.ended_runs = 0
        self._lock = threading.Lock()

    def send(self, word: str, what: Any = None) -> None:
        """Say something; whoever is gone does not hear it."""
        try:
            with self._lock:
                self.pipe.send_bytes(_encode([word, what]))
        except OSError:
            pass  # the end of the pipe is noticed where it is read

    def claimed(self, runs: Sequence[Run]) -> None:
        """Tell of claims, before anything of them is executed."""
        by_token: dict[str, list[str]] = {}
        for run in runs:
            by_token.setdefault(str(run.token), []).append(run.id)
        for token, ids in by_token.items():
            self.send(CLAIMED, [token, ids])

    def ended(self, run_ids: Sequence[str]) -> None:
        """Tell of claims that are over."""
        self.ended_runs += len(run_ids)
        self.send(ENDED, run_ids)
