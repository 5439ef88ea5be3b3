"""The reckoning: the ledgers joined with what is in the store, one line per invariant."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from mainspring.core.run import FINAL, Run, Status
from mainspring.jobstores.base import QueueInfo
from tests.chaos import ledger
from tests.chaos.ledger import Record

SECOND: Final = 1_000_000_000
SWEEP: Final = 5.0
"""Seconds after the end of a lease in which somebody looks."""
BUSY: Final = 6


class Finding(NamedTuple):
    """An invariant, how often it was looked at, and what was wrong."""

    name: str
    number: int
    wrong: list[str]
    note: str = ""

    def line(self) -> str:
        """Say it in a line."""
        bound = f", below {3 / self.number:.1g} each with 95 %" if self.number and not self.wrong else ""
        verdict = f"FAILED {len(self.wrong)}" if self.wrong else "0"
        more = f" ({self.note})" if self.note else ""
        return f"{self.name:<44} {verdict} of {self.number:,}{bound}{more}" + "".join(
            f"\n    {each}" for each in self.wrong[:5]
        )


class Span(NamedTuple):
    """A time in which somebody was harmed."""

    begin: int
    end: int


class History:
    """What the ledgers say, by run and by process."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.by_kind: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
        self.claims: dict[str, dict[str, Record]] = defaultdict(dict)
        self.released: dict[tuple[str, str], Record] = {}
        self.harm: dict[int, list[Span]] = defaultdict(list)
        self.kills: list[Record] = []
        self.outages: list[Span] = []
        self.began: dict[int, int] = {}
        for record in sorted(records, key=lambda record: record.at):
            self._take(record)

    def _take(self, record: Record) -> None:
        kind = record.kind
        if kind == ledger.FAULT:
            self._take_fault(record)
            return
        if kind == ledger.BEGIN:
            if record.id != "producer":
                self.began[record.pid] = record.at
        elif kind == ledger.CLAIMED:
            if (record.id, record.token) not in self.released:  # else the reply was slower than the lease
                self.claims[record.id].setdefault(record.token, record)
        elif kind in (ledger.ACCEPTED, ledger.BACK, ledger.RECOVERED):
            self.released.setdefault((record.id, record.token), record)
        self.by_kind[kind][record.id].append(record)

    def _take_fault(self, record: Record) -> None:
        length = int(float(record.extra) * SECOND)
        if record.id in ("restart", "stall"):
            self.outages.append(Span(record.at - length, record.at))
        elif record.id == "lock":  # somebody was frozen in the middle of a write, and nobody else could write
            self.outages.append(Span(record.at, record.at + length))
        elif record.id == "freeze":
            self.harm[record.pid].append(Span(record.at, record.at + length))
        elif record.id == "cut":
            self.harm[record.pid].append(Span(record.at - length, record.at))
        else:  # a killed process stays dead, so what it held is in doubt from then on
            self.harm[record.pid].append(Span(record.at, 1 << 62))
            if record.id == "kill":
                self.kills.append(record)

    def of(self, kind: str, run_id: str) -> list[Record]:
        """Return what of one kind was written about a run."""
        return self.by_kind[kind].get(run_id, [])

    def ids(self, kind: str) -> set[str]:
        """Return the runs about which one kind was written."""
        return set(self.by_kind[kind])

    def out_between(self, begin: int, end: int) -> bool:
        """Tell whether the store was away, or the machine too busy, at some time in between."""
        return any(span.begin <= end and span.end >= begin for span in self.outages)

    def undone(self, run_id: str) -> int:
        """Return how many claims of a run a crash of the store has undone: each has the number of the next one.

        A claim on PostgreSQL does not wait for the disk.
        """
        claims = sorted(self.claims.get(run_id, {}).values(), key=lambda claim: claim.at)
        return sum(
            claim.attempt == later.attempt and self.out_between(claim.at - SECOND, claim.at + SECOND)
            for claim, later in pairwise(claims)
        )

    def harmed_between(self, pid: int, begin: int, end: int) -> bool:
        """Tell whether a process was harmed, or everybody was."""
        own = any(span.begin <= end and span.end >= begin for span in self.harm.get(pid, ()))
        return own or self.out_between(begin, end)


class Checker:
    """Checks every invariant that can be seen from outside.

    On a `busy` machine a process may have had no time for its heartbeats, which is a freeze that nobody wrote down:
    that its runs are given to others is no fault there, and recovery may take six times as long.
    """

    def __init__(self, records: Iterable[Record], runs: Mapping[str, Run], lease: float, *, busy: bool = False) -> None:
        self.history = History(records)
        self.runs = runs
        self.lease = lease
        self.busy = busy

    def check(self, jobs: Mapping[str, tuple[float, bool]]) -> list[Finding]:
        """Return the findings about runs, fires and recovery."""
        return [
            self.lost(),
            self.unknown(),
            self.accepted_twice(),
            self.stale_word(),
            self.effects(),
            self.repeats(),
            self.starts(),
            self.started_once(),
            self.overlaps(),
            self.early(),
            *(self.fires(job, step, coalesce) for job, (step, coalesce) in jobs.items()),
            self.recovery(),
        ]

    def lost(self) -> Finding:
        """I1: what was acknowledged is there, and has ended."""
        wrong = []
        names = self.history.ids(ledger.ENQUEUED)
        for name in names:
            run = self.runs.get(name)
            if run is None:
                wrong.append(f"{name} was acknowledged and is gone")
            elif run.status not in FINAL:
                wrong.append(f"{name} is still {run.status}")
        return Finding("I1  acknowledged and lost", len(names), wrong)

    def unknown(self) -> Finding:
        """I2: what was not acknowledged is there or not, and only what is there was executed."""
        doubtful = self.history.ids(ledger.PROPOSE) - self.history.ids(ledger.ENQUEUED)
        there = [self.runs[name] for name in doubtful if name in self.runs]
        wrong = [f"{run.id} is still {run.status}" for run in there if run.status not in FINAL]
        wrong += [
            f"{name} was executed and is not in the store" for name in self.history.ids(ledger.START) - set(self.runs)
        ]
        lost_replies = len(self.history.ids(ledger.UNKNOWN))
        note = f"{len(doubtful)} never acknowledged, {len(there)} of them stored; {lost_replies} replies lost"
        return Finding("I2  executed without being stored", len(self.history.ids(ledger.START)), wrong, note)

    def accepted_twice(self) -> Finding:
        """I3: at most one outcome of a run was accepted, and the store has that one."""
        wrong = []
        accepted = self.history.by_kind[ledger.ACCEPTED]
        for name, records in accepted.items():
            run = self.runs.get(name)
            if len(records) > 1:
                wrong.append(f"{name}: " + ", ".join(f"{record.extra} by {record.token}" for record in records))
            elif run is not None and run.status.value != records[0].extra:
                wrong.append(f"{name} was accepted as {records[0].extra} and is {run.status}")
        return Finding("I3  accepted twice", len(accepted), wrong)

    def stale_word(self) -> Finding:
        """I4, I5: the accepted outcome is that of the last claim, and what has ended is not claimed again."""
        wrong = []
        for name, records in self.history.by_kind[ledger.ACCEPTED].items():
            run = self.runs.get(name)
            if run is not None and run.token != records[0].token:
                wrong.append(f"{name} was ended by {records[0].token}, but {run.token} held it")
            if any(claim.attempt > records[0].attempt for claim in self.history.claims[name].values()):
                wrong.append(f"{name} was claimed again after its end")
        refused = sum(map(len, self.history.by_kind[ledger.LOST].values()))
        return Finding("I4  ended by a stale word, or revived", len(self.runs), wrong, f"{refused} late words refused")

    def effects(self) -> Finding:
        """I6: no effect without a start, no success without an effect, one effect if it was claimed once."""
        wrong = []
        for name, run in self.runs.items():
            starts, effects = self.history.of(ledger.START, name), self.history.of(ledger.EFFECT, name)
            if len(effects) > len(starts):
                wrong.append(f"{name} has {len(effects)} effects of {len(starts)} starts")
            if run.status is Status.SUCCEEDED and not effects:
                wrong.append(f"{name} succeeded without an effect")
            once = run.attempt == 1 and run.status is Status.SUCCEEDED
            if once and len(effects) > 1 + self.history.undone(name):
                wrong.append(f"{name} was claimed once and has {len(effects)} effects")
        return Finding("I6  effects without a reason", len(self.runs), wrong)

    def repeats(self) -> Finding:
        """I6: an effect happens again only if the store had lost its first holder, or that had been harmed."""
        wrong, repeated = [], 0
        for name, effects in self.history.by_kind[ledger.EFFECT].items():
            if len(effects) < 2:
                continue
            repeated += 1
            accepted = {record.token for record in self.history.of(ledger.ACCEPTED, name)} or {effects[-1].token}
            for effect in effects:
                claim = self.history.claims[name].get(effect.token)
                if effect.token in accepted or claim is None:  # killed between the store's answer and its record
                    continue
                end = effects[-1].at
                if not self.history.harmed_between(claim.pid, claim.at - SECOND, end) and not self._given_up(
                    claim, end
                ):
                    wrong.append(f"{name}: the effect of {effect.token} was repeated, and process {claim.pid} was well")
        return Finding("I6  effects repeated without a fault", repeated, wrong, f"{repeated} repeated after faults")

    def _given_up(self, claim: Record, end: int) -> bool:
        """Tell whether the claim was given up before: a crash in a child, a deploy; for a busy machine, its lease."""
        back = self.history.released.get((claim.id, claim.token))
        kinds = (ledger.BACK, ledger.RECOVERED) if self.busy else (ledger.BACK,)
        return back is not None and back.kind in kinds and back.at <= end

    def starts(self) -> Finding:
        """I7: every start was charged as an attempt, and only failures, crashes and lost nodes lead to another."""
        wrong = []
        for name, starts in self.history.by_kind[ledger.START].items():
            run = self.runs.get(name)
            if run is None:
                continue
            if len(starts) > run.attempt + self.history.undone(name):
                wrong.append(f"{name} was started {len(starts)} times and charged {run.attempt}")
            if run.failures > run.policy.retries + 1:
                wrong.append(f"{name} failed {run.failures} times with {run.policy.retries} retries")
        return Finding("I7  starts that were not charged", len(self.history.by_kind[ledger.START]), wrong)

    def started_once(self) -> Finding:
        """I7: a run that may start once has started once."""
        names = [name for name, run in self.runs.items() if run.policy.delivery == "at_most_once"]
        wrong = [
            f"{name} was started {n} times" for name in names if (n := len(self.history.of(ledger.START, name))) > 1
        ]
        lost = sum(self.runs[name].reason == "lost" for name in names)
        return Finding("I7  at_most_once started twice", len(names), wrong, f"{lost} lost with their worker")

    def overlaps(self) -> Finding:
        """I8: a second claim only after the first was given up, which only its holder or the end of its lease does."""
        wrong, again, cut_off = [], 0, 0
        for name, claims in self.history.claims.items():
            for first, second in pairwise(claims.values()):
                again += 1
                back = self.history.released.get((name, first.token))
                harmed = self.history.harmed_between(first.pid, first.at - SECOND, second.at)
                if back is None:
                    # Whoever gave it up may have been killed, or crashed by a task, before it could write that down.
                    harmed = harmed or self.history.harmed_between(first.pid, second.at, second.at + SECOND)
                    if not harmed and not self._killed_between(first.at, second.at + SECOND):
                        wrong.append(f"{name}: {second.token} has it while {first.token} holds it")
                elif back.kind == ledger.RECOVERED and not harmed and not self.busy:
                    wrong.append(f"{name} was taken from process {first.pid}, which was well")
                elif back.kind == ledger.RECOVERED and not self.history.harm.get(first.pid):
                    cut_off += 1
        note = f"{cut_off} taken from living nodes that were cut off" if cut_off else ""
        return Finding("I8  claims while another one held", again, wrong, note)

    def _killed_between(self, begin: int, end: int) -> bool:
        return any(begin <= kill.at <= end for kill in self.history.kills)

    def early(self) -> Finding:
        """I10: nothing started before its instant."""
        due = [
            record for records in self.history.by_kind[ledger.START].values() for record in records if int(record.extra)
        ]
        wrong = [
            f"{record.id} started {int(record.extra) - record.at // 1000} us early"
            for record in due
            if record.at // 1000 < int(record.extra)
        ]
        return Finding("I10 started early", len(due), wrong)

    def fires(self, job: str, step: float, coalesce: bool) -> Finding:
        """I10: every instant of a job fired once: as a run of its own, or coalesced into a later one."""
        of_job = sorted(
            (run for run in self.runs.values() if run.job_id == job and run.fire_time is not None),
            key=lambda run: run.fire_time or 0,
        )
        wrong = []
        times = [run.fire_time or 0 for run in of_job]
        wrong += [f"{job} fired {n} times at {at}" for at, n in Counter(times).items() if n > 1]
        length = int(step * 1_000_000)
        if coalesce:
            first = (of_job[0].fire_time or 0) - (of_job[0].count - 1) * length if of_job else 0
            instants = sum(run.count for run in of_job)
            expected = ((times[-1] - first) // length + 1) if times else 0
            if instants != expected:
                wrong.append(f"{job} had {expected} instants, and its runs stand for {instants}")
        else:
            instants = len(times)
            gaps = [(a, b) for a, b in pairwise(times) if b - a != length]
            wrong += [f"{job} fired at {a} and then at {b}" for a, b in gaps]
        unfinished = [run.id for run in of_job if run.status is not Status.SUCCEEDED]
        wrong += [f"{name} is {self.runs[name].status}" for name in unfinished]
        how = "coalesced" if coalesce else "each"
        return Finding(f"I10 fired twice or not, every {step:g} s, {how}", instants, wrong)

    def recovery(self) -> Finding:
        """I11: what the dead held is claimable soon after there was a store, and a node to see to it."""
        limit = (self.lease + SWEEP) * (BUSY if self.busy else 1)
        wrong, delays = [], []
        by_pid: dict[int, list[Record]] = defaultdict(list)
        for claims in self.history.claims.values():
            for claim in claims.values():
                by_pid[claim.pid].append(claim)
        for kill in self.history.kills:
            for claim in by_pid[kill.pid]:
                back = self.history.released.get((claim.id, claim.token))
                if claim.at > kill.at or back is None or back.at <= kill.at:
                    continue
                delay = (back.at - self._could_since(kill, back.at)) / SECOND
                delays.append(delay)
                if delay > limit:
                    wrong.append(f"{claim.id} of process {kill.pid} was claimable after {delay:.1f} s")
        longest = max(delays, default=0.0)
        middle = sorted(delays)[len(delays) // 2] if delays else 0.0
        note = f"longest {longest:.1f} s, median {middle:.1f} s, limit {limit:g} s"
        return Finding("I11 runs of the dead claimable late", len(delays), wrong, note)

    def _could_since(self, kill: Record, until: int) -> int:
        """Return since when the store, and some node that then stayed well, could have seen to what a kill left."""
        begin = max([kill.at, *(span.end for span in self.history.outages if span.end <= until)])
        if any(span.begin <= until < span.end for span in self.history.outages):
            return until
        ready = [until]
        for pid, began in self.history.began.items():
            spans = [span for span in self.history.harm.get(pid, ()) if span.begin <= until]
            if began <= until and pid != kill.pid and all(span.end <= until for span in spans):
                ready.append(max([began, *(span.end for span in spans)]))
        return max(begin, min(ready))


def at_rest(
    runs: Mapping[str, Run], left: list[str], counters: Mapping[str, int], queues: Iterable[QueueInfo]
) -> Finding:
    """I12: nothing is left, and the store's own counts are right."""
    wrong = [f"{name} has not ended" for name in left]
    counted = Counter(run.status.value for run in runs.values())
    for status in FINAL:
        if counters.get(status.value, 0) != counted[status.value]:
            wrong.append(
                f"the store counts {counters.get(status.value, 0)} {status}, there are {counted[status.value]}"
            )
    wrong += [
        f"queue {queue.name!r} says {queue.waiting} wait, {queue.delayed} are delayed, {queue.running} run"
        for queue in queues
        if queue.waiting or queue.delayed or queue.running
    ]
    note = ", ".join(f"{number:,} {status}" for status, number in sorted(counted.items()))
    return Finding("I12 left over, or miscounted", len(runs), wrong, note)


def tampered(
    history: History, runs: Mapping[str, Run], spoiled: Mapping[str, bytes], kept: Mapping[str, bytes | None],
    whole: Iterable[str],
) -> Finding:  # fmt: skip
    """What was altered in the store was set aside with its bytes, never executed; its neighbours were."""
    wrong = []
    for name, frame in spoiled.items():
        run = runs.get(name)
        if run is None or run.status is not Status.BROKEN or not run.reason:
            wrong.append(f"{name} is {run.status if run else 'gone'}")
        if history.of(ledger.START, name):
            wrong.append(f"{name} was executed")
        if kept[name] != frame:
            wrong.append(f"the bytes of {name} were not kept")
    for name in whole:
        run = runs.get(name)
        if run is None or run.status is not Status.SUCCEEDED:
            wrong.append(f"{name} is {run.status if run else 'gone'}")
    return Finding("I12 altered, and executed or dropped", len(spoiled), wrong)
