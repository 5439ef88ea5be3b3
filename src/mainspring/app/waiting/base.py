"""The base of all waits: a time-out, and patience with a store that is away.

A waiter asks the store alone (`look`), or together with all other waiters of its process: the hub (`hub.py`) asks the
questions of all waiters in one call. A waiter yields its questions, so that both ways share the same code.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from mainspring.core.quantities import check_timeout
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import JobStore

__all__ = ["BaseWaiter", "RunQuestion"]

log = logging.getLogger("mainspring.app")


class RunQuestion(NamedTuple):
    """A waiter's question about runs: for their records, or only for their statuses."""

    run_ids: list[str]
    records: bool


class BaseWaiter(ABC):
    """A caller that waits for something that happens when runs end."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = check_timeout(timeout)
        self._deadline = time.monotonic() + self._timeout
        self._answered = False
        self.away = False
        """Whether the last look got no answer from the store."""
        self.warns_at = math.inf
        """The time at which to warn if the wait may never end, by the monotonic clock."""

    @abstractmethod
    def questions(self, store: JobStore) -> Generator[RunQuestion, Sequence[Any], bool]:
        """Look once: yield questions, receive the store's answer to each, and return True if the wait is over."""

    @property
    def looks_at(self) -> float:
        """The time at which this waiter has to look alone, by the monotonic clock, for example to give up."""
        return self._deadline

    def look(self, store: JobStore) -> bool:
        """Return True if the wait is over; raise TimeoutError when it has taken too long.

        A look during an outage of the store counts as one that found nothing. If the store has never answered, its
        error ends the wait: at the time-out, or at once if there is none.
        """
        try:
            return self._look(store)
        except StoreUnavailable as error:
            over = time.monotonic() >= self._deadline
            if not self._answered and (over or self._timeout == math.inf):
                raise
            if over:
                raise TimeoutError(
                    f"{self._unended()}, as far as known: the store does not answer ({error})"
                ) from error
            if not self.away:
                log.warning("the store does not answer; the wait goes on: %s", error)
            self.away = True
            return False

    def _look(self, store: JobStore) -> bool:
        began, questions = time.monotonic(), self.questions(store)
        try:
            question = next(questions)
            while True:
                ask = store.get_runs if question.records else store.standings
                question = questions.send(ask(question.run_ids))
        except StopIteration as stop:
            if stop.value:
                return True
        if began >= self._deadline:
            raise TimeoutError(self._describe(store))
        self._go_on(store, began)
        return False

    def _go_on(self, store: JobStore, began: float) -> None:  # noqa: B027 - there may be nothing to do
        """Do the work that is due after a look, when the wait goes on."""

    @abstractmethod
    def _unended(self) -> str:
        """Return a text about what did not happen in time."""

    def _describe(self, store: JobStore) -> str:
        """Return a text about what did not happen in time, with the reason if the store can tell."""
        return self._unended()
