"""Send a run back, together with the runs that were cancelled because of it; find the cause of a cancelled run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from mainspring.core import transitions
from mainspring.core.run import FINAL, WAITING, Outcome, Run, Status
from mainspring.core.waiting.refusals import in_order
from mainspring.errors import RunNotFound
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.finding import pages
from mainspring.node.settling import MOST_OUTCOMES

__all__ = ["SentBack", "first_refuser", "send_back", "write_back"]

LOOKS: Final = 50
LOOK_PAUSE_SECONDS: Final = 0.01
"""Pause this long before looking again at a refused run that a node has claimed and is about to cancel."""

FEW_STEPS: Final = 10
"""After this many steps back from a refused run, read the rest of its flow at once."""

_REFUSED: Final = (*WAITING, Status.RUNNING, Status.CANCELLED)


class SentBack(NamedTuple):
    """The runs that were sent back, and the ids of the runs that other runs still refuse."""

    runs: list[Run]
    refused: tuple[str, ...]


def send_back(
    store: JobStore,
    run_id: str,
    now: Callable[[], int],
    at: int | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> SentBack:
    """Send a run back to start at once or at `at`, in one write with the runs after it that it has refused.

    If there are more than a thousand, the rest follow in further writes. Raise ValueError if the run has not ended.
    """
    keyed = True
    for look in range(LOOKS):
        run = store.get_runs([run_id])[0]
        if run is None:
            raise RunNotFound(run_id)
        transitions.retry(run, now(), at)  # raise before the search for others, if this run cannot be sent back
        refused, busy = _refused_by(store, run)
        if busy and look < LOOKS - 1:
            pause(LOOK_PAUSE_SECONDS)
            continue
        outcomes = transitions.send_back(run, in_order(refused), now(), at)
        if not keyed:
            outcomes[0] = transitions.unkeyed(outcomes[0])
        answers = store.settle(outcomes[:MOST_OUTCOMES])
        if not answers[0]:  # the run was changed meanwhile, or another run has its unique key by now
            keyed = keyed and outcomes[0].run.unique is None
            continue
        written, still = [*answers], [*answers.refused]
        for start in range(MOST_OUTCOMES, len(outcomes), MOST_OUTCOMES):
            answers = store.settle(outcomes[start : start + MOST_OUTCOMES])
            written += answers
            still += answers.refused
        sent = [outcome.run for outcome, yes in zip(outcomes, written, strict=True) if yes]
        return SentBack(sent, tuple(still))
    raise ValueError(f"run {run_id!r} is changed by others all the time; try again")


def write_back(store: JobStore, outcomes: Sequence[Outcome]) -> SentBack:
    """Write outcomes that send runs back, a thousand at a time; drop unique keys that other runs have by now."""
    sent, refused = list[Run](), list[str]()
    for outcome in [outcome for outcome in outcomes if outcome.run.unique is not None]:
        if not store.settle([outcome])[0]:
            store.settle([transitions.unkeyed(outcome)])
        sent.append(outcome.run)
    keyless = [outcome for outcome in outcomes if outcome.run.unique is None]
    for start in range(0, len(keyless), MOST_OUTCOMES):
        part = keyless[start : start + MOST_OUTCOMES]
        answers = store.settle(part)
        sent += [outcome.run for outcome, yes in zip(part, answers, strict=True) if yes]
        refused += answers.refused
    return SentBack(sent, tuple(refused))


def _refused_by(store: JobStore, run: Run) -> tuple[list[Run], bool]:
    """Return the runs that a run has refused, directly or through others, and whether one is being cancelled now."""
    found: dict[str, Run] = {}
    busy = False
    group = _by_refusal(store, run.group)
    ahead = deque([run])
    while ahead:
        before = ahead.popleft()
        known = group.get(before.id, [])
        others: Iterable[Run] = ()
        if before.followed > len(known):  # some successors are outside its flow, or were not refused
            others = chain.from_iterable(pages(store, RunQuery(after=before.id)))
        for each in chain(known, others):
            if each.refused != before.id or each.id in found or each.status not in _REFUSED:
                continue
            if each.status is Status.RUNNING:
                busy = True
                continue
            found[each.id] = each
            ahead.append(each)
    return list(found.values()), busy


def _by_refusal(store: JobStore, group: str | None) -> dict[str, list[Run]]:
    """Return the refused runs of a flow by the run that refused them: reading a long flow by steps takes too long."""
    found: dict[str, list[Run]] = {}
    if group is not None:
        for each in chain.from_iterable(pages(store, RunQuery(status=_REFUSED, group=group))):
            if each.refused is not None:
                found.setdefault(each.refused, []).append(each)
    return found


def first_refuser(store: JobStore, run: Run) -> Run | None:
    """Return the run whose end caused the cancelling of another, perhaps over several steps; None if there is none."""
    flow: dict[str, Run] = {}
    found: Run | None = run
    step = 0
    while found is not None and found.status is Status.CANCELLED and found.refused is not None:
        step += 1
        if step == FEW_STEPS:
            flow = {each.id: each for some in _by_refusal(store, run.group).values() for each in some}
        found = flow.get(found.refused) or store.get_runs([found.refused])[0]
    if found is None or found is run or found.status not in FINAL or found.status is Status.SUCCEEDED:
        return None
    return found
