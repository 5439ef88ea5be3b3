"""Messages between a process pool and its children. Each message names its run."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

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
UNREADY: Final = "unready"  # the child ends because its initializer raised this error
CALL: Final = "call"  # to the child: execute this
WORDS: Final = "words"  # progress, data and log lines of the run
ANSWER: Final = "answer"  # the run's result or exception


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message; `body` is a pickle."""

    kind: str
    run_id: str = ""
    attempt: int = 0
    body: bytes = b""

    def is_about(self, run: Run) -> bool:
        """Return True if it is about this attempt of a run."""
        return (self.run_id, self.attempt) == (run.id, run.attempt)


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode


class ChildChannel:
    """The child's end of the pipe. Any thread may send; a process forked from the child sends nothing."""

    def __init__(self, pipe: Connection) -> None:
        self.home = os.getpid()
        self._pipe = pipe
        self._lock = threading.Lock()
        self._call: Message | None = None

    def receive(self) -> Message | None:
        """Wait for the next call; return None once the pipe is closed."""
        try:
            call = decode(self._pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        with self._lock:
            self._call = call
        return call

    def send(self, kind: str, body: bytes = b"", about: Message | None = None) -> None:
        """Send a message about a call; drop it if that call has been answered or the parent is gone."""
        # Check before taking the lock: in a forked process, a thread that no longer exists may hold it for ever.
        if os.getpid() != self.home:
            return
        with self._lock, suppress(OSError):
            if about is not self._call:
                return
            if kind == ANSWER:
                self._call = None
            run_id, attempt = ("", 0) if about is None else (about.run_id, about.attempt)
            # Hold the lock: a large message takes several writes, and no other thread may write in between.
            self._pipe.send_bytes(encode(Message(kind, run_id, attempt, body)))


class ChildNotesSink:
    """A sink that sends the progress, data and log lines of a run in a child process to the parent."""

    def __init__(self, channel: ChildChannel, call: Message, run: Run) -> None:
        self._channel, self._call, self._notes = channel, call, RunNotes(run)
        self._lock = threading.Lock()

    def notes_of(self, run: Run) -> RunNotes:
        """Return the notes of the run."""
        return self._notes

    def inputs(self, run: Run) -> list[Any]:
        """Refuse: a child process has no connection to the store."""
        raise RuntimeError(
            'a task with isolation="process" cannot read the results of the runs before it; pass handle.output to it'
        )

    def notes_changed(self, notes: RunNotes) -> None:
        """Send the changes."""
        if os.getpid() != self._channel.home:
            return
        with self._lock:
            lines, notes.unsent = notes.unsent, []
            self._channel.send(WORDS, dump_words(notes, lines), self._call)
