"""Pack and write the outcomes of runs, for the worker, the janitor, the sentinel and people.

The settler packs each outcome once, by itself, before it writes any. So an outcome that cannot be stored affects only
its own run.

A run that does not end in the way that a later run needs refuses that later run. The settler that wrote the end cancels
the refused runs in its next write. Their ends may refuse further runs, so it repeats this until none is left. If this
process dies, the node that claims a refused run cancels it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.insight.acts import about
from mainspring.core.run import FINAL, WAITING, Condition, Outcome, Report, Result, Run, Status
from mainspring.core.transitions import drop, failures, recover, shortened, stop
from mainspring.core.waiting.refusals import doomed, reason_after
from mainspring.errors import is_own
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.finding import pages

__all__ = ["SettledOutcome", "Settler", "give_back_lapsed"]

MOST_OUTCOMES: Final = 1000
"""Write at most this many outcomes in one call."""
MOST_SUCCESSORS: Final = 2000
"""Add no more ended runs to a call when about this many other runs come after them."""
LAPSED_PAGE_RUNS: Final = 1000
"""Look at this many runs whose leases are over, to find those that were taken by hand."""
REASONS_REMEMBERED: Final = 10_000
"""Forget all remembered reasons when there are more than this."""
ACTS_LOOKED_AT: Final = 5
"""Read this many of the newest acts about a cancelled run to find out why it was stopped."""
_CANCELLED, _PENDING = Status.CANCELLED, Status.PENDING

log = logging.getLogger("mainspring.worker")


class SettledOutcome(NamedTuple):
    """An outcome that the store has judged."""

    report: Report
    outcome: Outcome
    accepted: bool

    @property
    def dropped(self) -> bool:
        """Whether the settler made this outcome, to cancel a run that can no longer run, without a report about it."""
        return self.outcome.condition is Condition.REFUSED


class Settler:
    """Packs and writes the outcomes of one store's runs: `add` outcomes, then `write` them, or `settle` until done."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.unsettled: list[tuple[Report, Outcome, Any]] = []
        """Packed outcomes that are not written yet; after an outage, the same ones are written again."""
        self._doomed: deque[tuple[str, str]] = deque()
        """Runs to cancel, each with the run that refuses it."""
        self._known: set[str] = set()
        """All runs that were ever doomed since the last write that refused none."""
        self._reasons: dict[str, str] = {}
        """The reason for cancelling the runs after a run, by the id of that run."""

    def add(self, report: Report, outcome: Outcome, now: int) -> None:
        """Pack an outcome for the next write; if it cannot be stored, shorten it or fail its run."""
        ended = outcome.run
        if ended.status is _CANCELLED and ended.reason is None and ended.job_id is not None:
            outcome = replace(outcome, run=replace(ended, reason=self._reason(ended)))
        try:
            packed = self._store.pack_outcome(outcome)
        except BaseException as error:  # packing a user's value may raise anything, and the report must not be lost
            if not is_own(error):
                raise
            report, outcome, packed = self._pack_shorter(report, outcome, error, now)
        self.unsettled.append((report, outcome, packed))

    def _reason(self, run: Run) -> str | None:
        """Return why a run was stopped, if a later fire of its job stopped it."""
        try:
            acts = self._store.acts(about=about("run", run.id), limit=ACTS_LOOKED_AT)
        except Exception:  # writing the end of the run matters more than the reason
            return None
        return next((str(act.details["reason"]) for act in acts if "reason" in act.details), None)

    def settle(self, now: int) -> Iterator[SettledOutcome]:
        """Write until nothing is unsettled; yield the outcomes with the store's verdicts."""
        while self.unsettled:
            yield from self.write(now)

    def write(self, now: int) -> list[SettledOutcome]:
        """Write all unsettled outcomes; return those that the store has accepted or rejected for good.

        If the store rejects the retry of a run, because the run is lost or should be stopped, the run is cancelled in
        the next write. So are the runs that can no longer run because of this write.
        """
        settled, refused = list[SettledOutcome](), list[str]()
        for each in self._write(now, refused):
            report, outcome, accepted = each
            if accepted or outcome.run.status is not _PENDING:
                settled.append(each)
            else:
                self.add(report, stop(outcome, now), now)
        if refused or self._doomed:
            self._note_reasons(each.outcome.run for each in settled if each.accepted)
            self.cancel_refused(refused, now)
        elif self._known:
            self._known.clear()
        return settled

    # -- runs that can no longer run -----------------------------------------------------------------------------

    def cancel_refused(self, refused: Iterable[str], now: int) -> None:
        """Prepare to cancel refused runs, and the runs that can no longer run because of them."""
        try:
            self._doom([run_id for run_id in refused if run_id not in self._known])
            self._cancel_doomed(now)
        except Exception as error:  # still return the written outcomes; nodes that claim these runs cancel them
            log.warning("refused runs are left to those who claim them: %s", error)
            self._doomed.clear()

    def reason_for(self, run: Run) -> str:
        """Return why a refused run is cancelled."""
        before = run.refused or "another run"
        if before not in self._reasons:
            try:
                self._note_reasons(found for found in self._store.get_runs([before]) if found is not None)
            except Exception as error:
                log.info("cannot read why run %r was refused: %s", run.id, error)
        return self._reasons.get(before) or reason_after(None, before)

    def _note_reasons(self, ended: Iterable[Run]) -> None:
        if len(self._reasons) > REASONS_REMEMBERED:
            self._reasons.clear()
        self._reasons.update((run.id, reason_after(run, run.id)) for run in ended if run.status in FINAL)

    def _doom(self, refused: list[str]) -> None:
        """Note refused runs; if two runs in a row are refused in a flow, note the rest of the flow, too.

        A settle releases or refuses only the direct successors of the runs that it ends. Without this look ahead, a
        long flow would be cancelled one step per write.
        """
        groups: dict[str, list[str]] = {}
        for run in self._store.get_runs(refused) if refused else ():
            if run is None or run.refused is None or run.status not in WAITING:
                continue  # another process has it, or it has ended
            self._note(run.id, run.refused)
            followed = run.followed > (1 if run.policy.hook is not None else 0)
            if run.group is not None and followed and run.refused in self._known:
                groups.setdefault(run.group, []).append(run.id)
        for group, ids in groups.items():
            blocked = pages(self._store, RunQuery(status=(Status.BLOCKED,), group=group))
            steps = ((run.id, run.after) for run in chain.from_iterable(blocked))
            for run_id, before in doomed(ids, steps):
                if run_id not in self._known:
                    self._note(run_id, before)

    def _note(self, run_id: str, before: str) -> None:
        self._known.add(run_id)
        self._doomed.append((run_id, before))

    def _cancel_doomed(self, now: int) -> None:
        """Add the outcomes of as many doomed runs as fit into the next write."""
        while self._doomed and len(self.unsettled) < MOST_OUTCOMES:
            some = list(islice(self._doomed, MOST_OUTCOMES - len(self.unsettled)))
            for run, (run_id, before) in zip(self._store.get_runs([run_id for run_id, _ in some]), some, strict=True):
                self._doomed.popleft()
                if run is None or run.status not in WAITING:
                    continue
                refused = replace(run, refused=run.refused or before)
                reason = self._reasons[run_id] = self.reason_for(refused)
                self.add(Report(refused, Result.REFUSED), drop(refused, reason, now), now)

    # -- packing and writing -------------------------------------------------------------------------------------

    def _pack_shorter(
        self, report: Report, outcome: Outcome, error: BaseException, now: int
    ) -> tuple[Report, Outcome, Any]:
        """Pack the longest form of an outcome that can be stored."""
        problem = error if isinstance(error, Exception) else RuntimeError(repr(error))
        shorter = ((report, form) for form in shortened(outcome))
        for form_report, form in chain(shorter, failures(report, outcome, problem, now)):
            try:
                packed = self._store.pack_outcome(form)
            except BaseException as again:
                if not is_own(again):
                    raise
                continue
            if form_report is report:
                log.error("the outcome of run %r cannot be stored whole: %s", report.run.id, problem)
            return form_report, form, packed
        raise problem

    def _write(self, now: int, refused: list[str]) -> list[SettledOutcome]:
        """Write all outcomes at once; if that fails, write smaller parts, so that one bad outcome delays no other."""
        settled: list[SettledOutcome] = []
        size = MOST_OUTCOMES
        while self.unsettled:
            part = self._part(size) if len(self.unsettled) > 1 else self.unsettled[:]
            try:
                answers = self._store.settle([packed for _, _, packed in part])
                written = []
                for (report, outcome, _), yes in zip(part, answers, strict=True):
                    written.append(SettledOutcome(report, outcome, yes))
                refused += answers.refused
            except OSError:  # the store is away
                if settled:
                    break
                raise
            except Exception as problem:
                if len(part) > 1:
                    size = len(part) // 2
                    continue
                try:
                    written = [self._write_failure(*part[0][:2], problem, now, refused)]
                except Exception:  # the store itself is down; write this outcome last the next time
                    self.unsettled.append(self.unsettled.pop(0))
                    if settled:
                        break
                    raise
            del self.unsettled[: len(part)]
            settled += written
            size = min(MOST_OUTCOMES, size * 2)
        return settled

    def _part(self, size: int) -> list[tuple[Report, Outcome, Any]]:
        """Return the outcomes to write in the next call."""
        part, successors = self.unsettled[:size], 0
        for number, (_, outcome, _) in enumerate(part):
            if outcome.run.followed and outcome.run.status in FINAL:
                successors += outcome.run.followed
                if number and successors > MOST_SUCCESSORS:
                    return part[:number]
        return part

    def _write_failure(
        self, report: Report, outcome: Outcome, problem: Exception, now: int, refused: list[str]
    ) -> SettledOutcome:
        """End a run as failed because the store cannot write its outcome."""
        for failed, end in failures(report, outcome, problem, now):
            try:
                answers = self._store.settle([end])
            except OSError:
                raise
            except Exception:
                continue
            refused += answers.refused
            log.error("the outcome of run %r cannot be written, so the run has failed: %s", report.run.id, problem)
            return SettledOutcome(failed, end, answers[0])
        raise problem


def give_back_lapsed(store: JobStore, chosen: Callable[[Run], bool]) -> None:
    """Free runs that were taken by hand and whose leases are over: there may be no node with a janitor."""
    lapsed = list(filter(chosen, store.find_runs(RunQuery(lapsed=True), limit=LAPSED_PAGE_RUNS)))
    settler, now = Settler(store), store.beat() if lapsed else 0
    for run in lapsed:
        settler.add(Report(run, Result.INTERRUPTED), recover(run, now), now)
    list(settler.settle(now))
