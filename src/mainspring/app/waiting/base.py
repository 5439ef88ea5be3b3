"""The base of all waits: a time-out, and patience with a store that is away.

A waiter asks the store alone (`look`), or together with all others of its process: the hub (`hub.py`) takes the
questions of all waiters and asks them in one call. A waiter yields its questions, so that both ways share every line.
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
    """Runs of which a waiter wants the records, or only the statuses."""

    run_ids: list[str]
    records: bool


class BaseWaiter(ABC):
    """Somebody who waits for something that ends of runs bring about."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = check_timeout(timeout)
        self._deadline = time.monotonic() + self._timeout
        self._answered = False
        self.away = False
        """Whether the last look got no answer from the store."""
        self.warns_at = math.inf
        """When to warn if it looks as if the wait were in vain, by the monotonic clock."""

    @abstractmethod
    def questions(self, store: JobStore) -> Generator[RunQuestion, Sequence[Any], bool]:
        """Look once: yield questions, take what the store answers to each, and return True if the wait is over."""

    @property
    def looks_at(self) -> float:
        """When this waiter has to look alone, by the monotonic clock: to give up, for example."""
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
        """Do what is due when a look has found that the wait goes on."""

    @abstractmethod
    def _unended(self) -> str:
        """Say what has not come about in time."""

    def _describe(self, store: JobStore) -> str:
        """Say what did not happen in time, and why if the store can tell."""
        return self._unended()
