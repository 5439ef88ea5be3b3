"""Write the outcomes of runs: one that cannot be written as it is keeps no other from its end."""

from __future__ import annotations

import logging
from typing import NamedTuple

from msgspec.structs import replace

from mainspring.codec import EncodeError
from mainspring.core.followups import told_less
from mainspring.core.run import Outcome, Report, Result, Status, describe
from mainspring.core.transitions import conclude, stop
from mainspring.jobstores.base import JobStore

__all__ = ["Settled", "Settler"]

log = logging.getLogger("mainspring.worker")


class Settled(NamedTuple):
    """An outcome that the store has judged."""

    report: Report
    outcome: Outcome
    accepted: bool


class Settler:
    """Writes the outcomes of one store's runs, for the worker, the janitor and the sentinel."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.unsettled: list[tuple[Report, Outcome]] = []
        """What the store has yet to be told: after an outage the same outcomes are written again."""

    def add(self, report: Report, outcome: Outcome) -> None:
        """Have an outcome written next time."""
        self.unsettled.append((report, outcome))

    def write(self, now: int) -> list[Settled]:
        """Write what is unsettled; return what the store has judged.

        A run that may not wait again, because it is lost or is to be stopped, stays unsettled, as cancelled.
        """
        settled = []
        for each in self._write(now):
            if each.accepted or each.outcome.run.status is not Status.PENDING:
                settled.append(each)
            else:
                self.add(each.report, stop(each.outcome, now))
        return settled

    def _write(self, now: int) -> list[Settled]:
        batch = self.unsettled
        try:
            answers = self._store.settle([outcome for _, outcome in batch])
        except OSError:  # the store is away
            raise
        except EncodeError:
            self.unsettled = [(report, self._shortened(report, outcome, now)) for report, outcome in batch]
            return self._write_in_parts(now)
        except Exception:
            return self._write_in_parts(now)
        self.unsettled = []
        return [Settled(*each, accepted) for each, accepted in zip(batch, answers, strict=True)]

    def _write_in_parts(self, now: int) -> list[Settled]:
        """Write what is unsettled in ever smaller parts, so that one bad outcome does not hold up the others."""
        settled: list[Settled] = []
        parts = [self.unsettled]
        while parts:
            part = parts.pop()
            try:
                answers = self._store.settle([outcome for _, outcome in part])
                settled += [Settled(*each, accepted) for each, accepted in zip(part, answers, strict=True)]
            except Exception as error:
                if len(part) > 1 and not isinstance(error, OSError):
                    half = len(part) // 2
                    parts += part[half:], part[:half]
                    continue
                try:
                    settled.append(self._write_failure(*part[0], error, now))
                except Exception:  # the store itself is ill; next time this one is the last
                    self.unsettled = [each for rest in reversed(parts) for each in rest] + part
                    if not settled:
                        raise
                    return settled
        self.unsettled = []
        return settled

    def _write_failure(self, report: Report, outcome: Outcome, problem: Exception, now: int) -> Settled:
        """End a run as failed because the store cannot write its outcome."""
        if isinstance(problem, OSError):
            raise problem
        bare = replace(report.run, errors=(), progress=None, data=None, log=())
        error = describe(problem, now, bare.attempt)
        for changes in ({"retention": None}, {"retention": None, "hook": None}):
            run = replace(bare, policy=replace(bare.policy, **changes))
            failed = replace(report, run=run, result=Result.RAISED, value=None, exception=problem, error=error)
            try:
                ended = _failure(failed, outcome, now)
                [accepted] = self._store.settle([ended])
            except OSError:
                raise
            except Exception:
                continue
            log.error("the outcome of run %r cannot be written, so the run has failed: %s", run.id, problem)
            return Settled(failed, ended, accepted)
        raise problem

    def _shortened(self, report: Report, outcome: Outcome, now: int) -> Outcome:
        """Return an outcome, or as much of it as the store takes; if that is too little, the run has failed for it."""
        problem = self._store.unstorable_outcome(outcome)
        if problem is None:
            return outcome
        log.error("the outcome of run %r cannot be stored whole: %s", report.run.id, problem)
        hooks_told_less = replace(outcome, then=tuple(map(told_less, outcome.then)))
        brief = replace(outcome.run, errors=outcome.run.errors[-1:], log=())
        silent = replace(brief, progress=None, data=None)
        for less in (hooks_told_less, *(replace(hooks_told_less, run=run) for run in (brief, silent))):
            if self._store.unstorable_outcome(less) is None:
                return less
        report.run = replace(report.run, errors=(), progress=None, data=None, log=())
        report.result, report.value, report.exception = Result.RAISED, None, problem
        report.error = describe(problem, now, report.run.attempt)
        return _failure(report, outcome, now)


def _failure(report: Report, outcome: Outcome, now: int) -> Outcome:
    """Return the outcome of a failed run, written under the condition of the one that it replaces."""
    failed = conclude(report, now, 0.0, retry=False)
    return replace(failed, condition=outcome.condition, then=tuple(map(told_less, failed.then)))
