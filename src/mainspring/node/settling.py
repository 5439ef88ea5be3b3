"""Pack and write the outcomes of runs, for the worker, the janitor, the sentinel and people.

Each outcome is packed once, by itself, before any is written: so one that cannot be stored concerns only its own run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.insight.acts import about
from mainspring.core.run import Outcome, Report, Run, Status
from mainspring.core.transitions import failures, shortened, stop
from mainspring.errors import is_own
from mainspring.jobstores.base import JobStore

__all__ = ["SettledOutcome", "Settler"]

ACTS_LOOKED_AT: Final = 5

log = logging.getLogger("mainspring.worker")


class SettledOutcome(NamedTuple):
    """An outcome that the store has judged."""

    report: Report
    outcome: Outcome
    accepted: bool


class Settler:
    """Packs and writes the outcomes of one store's runs."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.unsettled: list[tuple[Report, Outcome, Any]] = []
        """Packed outcomes that are not written yet: after an outage the same ones are written again."""

    def add(self, report: Report, outcome: Outcome, now: int) -> None:
        """Pack an outcome for the next write; if it cannot be stored, shorten it or fail its run."""
        ended = outcome.run
        if ended.status is Status.CANCELLED and ended.reason is None and ended.job_id is not None:
            outcome = replace(outcome, run=replace(ended, reason=self._reason(ended)))
        try:
            packed = self._store.pack_outcome(outcome)
        except BaseException as error:  # packing the user's value may raise anything, and the report must not be lost
            if not is_own(error):
                raise
            report, outcome, packed = self._pack_shorter(report, outcome, error, now)
        self.unsettled.append((report, outcome, packed))

    def _reason(self, run: Run) -> str | None:
        """Return why a run of a job was stopped, if a later fire of the job had it stopped."""
        try:
            acts = self._store.acts(about=about("run", run.id), limit=ACTS_LOOKED_AT)
        except Exception:  # the end of the run matters more
            return None
        return next((str(act.details["reason"]) for act in acts if "reason" in act.details), None)

    def settle(self, now: int) -> Iterator[SettledOutcome]:
        """Write until nothing is unsettled; yield the outcomes with the store's verdicts."""
        while self.unsettled:
            yield from self.write(now)

    def write(self, now: int) -> list[SettledOutcome]:
        """Write all unsettled outcomes; return those that the store has judged.

        A run that may not be retried, because it is lost or should be stopped, stays unsettled, as cancelled.
        """
        settled = []
        for each in self._write(now):
            if each.accepted or each.outcome.run.status is not Status.PENDING:
                settled.append(each)
            else:
                self.add(each.report, stop(each.outcome, now), now)
        return settled

    def _pack_shorter(
        self, report: Report, outcome: Outcome, error: BaseException, now: int
    ) -> tuple[Report, Outcome, Any]:
        """Pack the longest form of an outcome that can be stored."""
        problem = error if isinstance(error, Exception) else RuntimeError(repr(error))
        shorter = ((report, form) for form in shortened(outcome))
        for told, form in chain(shorter, failures(report, outcome, problem, now)):
            try:
                packed = self._store.pack_outcome(form)
            except BaseException as again:
                if not is_own(again):
                    raise
                continue
            if told is report:
                log.error("the outcome of run %r cannot be stored whole: %s", report.run.id, problem)
            return told, form, packed
        raise problem

    def _write(self, now: int) -> list[SettledOutcome]:
        """Write all at once; if the store refuses, write smaller parts, so that one bad outcome delays no other."""
        settled: list[SettledOutcome] = []
        size = len(self.unsettled)
        while self.unsettled:
            part = self.unsettled[:size]
            try:
                answers = self._store.settle([packed for _, _, packed in part])
                written = [
                    SettledOutcome(report, outcome, yes)
                    for (report, outcome, _), yes in zip(part, answers, strict=True)
                ]
            except OSError:  # the store is away
                if settled:
                    break
                raise
            except Exception as problem:
                if len(part) > 1:
                    size = len(part) // 2
                    continue
                try:
                    written = [self._write_failure(*part[0][:2], problem, now)]
                except Exception:  # the store itself is down; next time this outcome comes last
                    self.unsettled.append(self.unsettled.pop(0))
                    if settled:
                        break
                    raise
            del self.unsettled[: len(part)]
            settled += written
            size *= 2
        return settled

    def _write_failure(self, report: Report, outcome: Outcome, problem: Exception, now: int) -> SettledOutcome:
        """End a run as failed because the store cannot write its outcome."""
        for failed, end in failures(report, outcome, problem, now):
            try:
                [accepted] = self._store.settle([end])
            except OSError:
                raise
            except Exception:
                continue
            log.error("the outcome of run %r cannot be written, so the run has failed: %s", report.run.id, problem)
            return SettledOutcome(failed, end, accepted)
        raise problem
