"""Messages between a process pool and a child: each names the run that it is about."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from mainspring.core.run import Run
from mainspring.executors.current_run import RunNotes
from mainspring.executors.processes.pickling import dump_words

__all__ = [
    "ANSWER",
    "CALL",
    "READY",
    "UNREADY",
    "WORDS",
    "ChildChannel",
    "ChildNotesSink",
    "Message",
    "decode",
    "encode",
]

READY: Final = "ready"  # the child takes calls
UNREADY: Final = "unready"  # the child ends, because its initializer raised this
CALL: Final = "call"  # to the child: execute this
WORDS: Final = "words"  # what the run says of itself while it is executed
ANSWER: Final = "answer"  # what the run returned or raised


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message; `body` is a pickle."""

    kind: str
    run_id: str = ""
    attempt: int = 0
    body: bytes = b""

    def is_about(self, run: Run) -> bool:
        """Tell whether it is about this attempt of a run."""
        return (self.run_id, self.attempt) == (run.id, run.attempt)


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode


class ChildChannel:
    """The child's end of the pipe. Any thread may send; a process that was forked from the child sends nothing."""

    def __init__(self, pipe: Connection) -> None:
        self.home = os.getpid()
        self._pipe = pipe
        self._lock = threading.Lock()
        self._call: Message | None = None

    def receive(self) -> Message | None:
        """Wait for the next call; return None if there will be none."""
        try:
            call = decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        with self._lock:
            self._call = call
        return call

    def send(self, kind: str, body: bytes = b"", about: Message | None = None) -> None:
        """Send a message about a call; drop it if that call has been answered. A parent that is gone needs none."""
        # Before the lock, which a thread that is not in a forked process may hold there for ever.
        if os.getpid() != self.home:
            return
        with self._lock, suppress(OSError):
            if about is not self._call:
                return
            if kind == ANSWER:
                self._call = None
            run_id, attempt = ("", 0) if about is None else (about.run_id, about.attempt)
            # A large message is written in several steps, so nobody else may write before its end.
            self._pipe.send_bytes(encode(Message(kind, run_id, attempt, body)))


class ChildNotesSink:
    """Passes on what a run in a child process says of itself."""

    def __init__(self, channel: ChildChannel, call: Message, run: Run) -> None:
        self._channel, self._call, self._live = channel, call, RunNotes(run)
        self._lock = threading.Lock()

    def live(self, run: Run) -> RunNotes:
        """Return what the run has said so far."""
        return self._live

    def said(self, live: RunNotes) -> None:
        """Send what is new."""
        if os.getpid() != self._channel.home:
            return
        with self._lock:
            lines, live.unsent = live.unsent, []
            self._channel.send(WORDS, dump_words(live, lines), self._call)
