"""Add, claim, settle and prune runs in Redis, and set aside altered records."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Any, Final, TypeVar

from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want
from mainspring.core.run import Run
from mainspring.core.stored.edges import MOST_EDGES
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import Answers, Hold
from mainspring.jobstores.records.rows import (
    ALTERED,
    LATEST_INSTANT,
    BeatRow,
    RunRow,
    SettleRow,
    run_damage,
)
from mainspring.jobstores.redis.finding import RedisFinding
from mainspring.jobstores.redis.service import RedisService
from mainspring.jobstores.redis.shards import SCRIPT_RUNS, Shard
from mainspring.jobstores.redis.wire import (
    NO_CLAIM,
    Claim,
    earliest,
    instant,
    is_plain,
    new_run,
    outcome,
    raw,
    restored_outbox,
    run_row,
    run_rows,
    texts,
)

__all__ = ["RedisRuns"]

Placed = TypeVar("Placed", RunRow, Run)

log = logging.getLogger("mainspring.jobstores.redis")

NEW_RUNS_PER_SCRIPT: Final = 250
"""One script call adds this many runs; the next call is packed and sent while the server works on this one."""
SWEEP_PAGE_RECORDS: Final = 200
"""One script call of a sweep reads this many records, in about a millisecond of the server's time."""
SWEEP_PAGE_CALLS: Final = 20
"""One script call of a sweep reads this many calls, which may be big."""
SWEEP_PAGES: Final = 50
"""One sweep reads this many pages."""
OUTBOX_AFTER_US: Final = 5 * SECOND
"""`prune` delivers a follow-up for another shard that has been in the outbox for this long."""
_RUN_ID: Final = attrgetter("run.id")
_RUN_AT: Final = attrgetter("run_at")
_PRIORITY: Final = attrgetter("priority")
_HOLDS: Final = (Hold.LOST, Hold.HELD, Hold.LOST, Hold.CANCEL)
"""The meaning of each answer of extend.lua."""


class RedisRuns(RedisFinding, RedisService):
    """The verbs that change runs, each a script call on one or more shards."""

    keep_runs: int
    _searched: list[Shard]
    _swept: dict[Shard, tuple[str, str, str]]
    """The cursors from which the next sweep of a shard continues."""

    # -- runs --------------------------------------------------------------------------------------------------

    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        if len(rows) == 1 and is_plain(rows[0]):
            run_id = rows[0].id
            self._call(self._shards.of_run(run_id), "add_run", new_run(rows[0]))
            return Answers([run_id])
        return self._add_several(rows)

    def _add_several(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        refused: list[str] = []

        def act(shard: Shard, part: Sequence[RunRow]) -> list[str | None]:
            # Pack the next runs while the server inserts these. Add runs that edges connect in one call: all or none.
            size = len(part) if any(row.after for row in part) else NEW_RUNS_PER_SCRIPT
            chunks = [part[first : first + size] for first in range(0, len(part), size)]
            replies = self._stream(shard, "add_runs", ([[new_run(row) for row in chunk]] for chunk in chunks))
            ids: list[str | None] = []
            for chunk, reply in zip(chunks, replies, strict=True):
                if len(reply) == 1:
                    raise ValueError(f"more than {MOST_EDGES:,} runs would come after the run {reply[0].decode()!r}")
                ids += [None if each is None else each.decode() for each in reply[0]] or [row.id for row in chunk]
                refused.extend(texts(reply[1]))
            self._shards.found([run_id for run_id in ids if run_id is not None], shard)
            return ids

        for row in rows:
            if len(row.after) > MOST_EDGES:
                raise ValueError(f"the run {row.id!r} would come after more than {MOST_EDGES:,} runs")
        homes = self._homes(rows) if len(self._shards.all) > 1 and any(row.after for row in rows) else {}
        for row in rows if homes else ():
            if any(homes.get(edge.id, homes[row.id]) is not homes[row.id] for edge in row.after):
                raise ValueError(
                    f"the run {row.id!r} comes after runs of another shard, and no step covers two of them"
                )
        home = lambda row: homes.get(row.id) or self._shards.of_new_run(row.id, row.gate or row.unique)  # noqa: E731
        batch = len(rows) if homes else SCRIPT_RUNS
        return Answers(self._shards.ask(rows, home, act, batch), refused)

    def far_edges(self, runs: Sequence[Run]) -> list[tuple[str, str]]:
        if len(self._shards.all) == 1:
            return []
        homes = self._homes(runs)
        edges = ((edge.id, run.id) for run in runs for edge in run.after)
        return [(before, after) for before, after in edges if before in homes and homes[before] is not homes[after]]

    def _homes(self, runs: Sequence[Placed]) -> dict[str, Shard]:
        """Return the shards of the runs that edges touch, and of the stored runs that they come after.

        Runs that edges connect share a shard: that of their key or gate, else that of the first stored predecessor,
        else that of the first run.
        """
        outside = list(dict.fromkeys(edge.id for run in runs for edge in run.after).keys() - {run.id for run in runs})
        there = [run_id for run_id, known in zip(outside, self.standings(outside), strict=True) if known is not None]
        homes: dict[str, Shard] = {run_id: self._shards.of_run(run_id) for run_id in there}
        for group in _connected(runs):
            keyed = {
                self._shards.of_job(word): run for run in group for word in (run.unique, run.gate) if word is not None
            }
            if len(keyed) > 1:
                raise ValueError(
                    f"the run {group[-1].id!r} and those before it have keys or limits of different shards, and no "
                    "step covers two of them; give all of them the same shard="
                )
            placed = (homes[edge.id] for run in group for edge in run.after if edge.id in homes)
            shard = next(iter(keyed), None) or next(placed, None) or self._shards.of_run(group[0].id)
            homes.update((run.id, shard) for run in group)
        return homes

    def _claim_rows(
        self, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        if len(self._shards.all) == 1:
            return self._claim_from(self._shards.all[0], wants, node, token, lease)
        return self._claim_from_several(wants, node, token, lease)

    def _claim_from(
        self, shard: Shard, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        args = [[[list(lanes), limit] for lanes, limit in wants], node, token, int(lease * SECOND)]
        now, next_at, until, reply, altered = self._call(shard, "claim", args)
        if altered:
            self._set_runs_aside(shard, altered)
        claim = NO_CLAIM if until is None else (token, node, until)
        return now, _by_urgency(self._seen(shard, reply, claim)), instant(next_at)

    def _claim_from_several(
        self, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        """Peek into every shard, then claim from those with the most urgent runs.

        A repeated claim goes only to the shards that hold runs under its token.
        """
        now, times = 0, {}
        runs: list[RunRow] = []
        shares: dict[Shard, Counter[int]] = {}  # by the index of the want: how many runs to claim
        due: list[list[tuple[bytes, int, Shard]]] = [[] for _ in wants]  # the number breaks ties between shards
        asked = [[list(lanes), limit] for lanes, limit in wants]
        for number, shard in enumerate(self._shards.turn()):
            at, next_at, urgencies, held = self._call(shard, "peek", [asked, token])
            now, times[shard] = max(now, at), instant(next_at)
            if held[0]:  # claim the held runs again: replicas may not have the first claim yet
                shares[shard] = Counter()
            for found, some in zip(due, urgencies, strict=True):
                found += [(urgency, number, shard) for urgency in some]
        if not shares:
            for want, (found, (_, limit)) in enumerate(zip(due, wants, strict=True)):
                for _, _, shard in nsmallest(limit, found):
                    shares.setdefault(shard, Counter())[want] += 1
        for shard, numbers in shares.items():
            part = [(lanes, numbers[want]) for want, (lanes, _) in enumerate(wants)]
            at, rows, times[shard] = self._claim_from(shard, part, node, token, lease)
            now = max(now, at)
            runs += rows
        return now, _by_urgency(runs), earliest(times.values())

    # -- altered records ---------------------------------------------------------------------------------------

    def _set_altered_aside(self, run_ids: Sequence[str], job_ids: Sequence[str]) -> int:
        number: int = 0
        for run_id in run_ids:
            for shard in self._shards.all:
                number += self._set_runs_aside(shard, [run_id.encode("utf-8", "surrogateescape")])
        for job_id in job_ids:
            reason = f"bad_data: its state {ALTERED}"
            number += int(self._call(self._shards.of_job(job_id), "set_aside", [job_id, False, reason]))
        if not run_ids and not job_ids:
            number += sum(self._sweep(shard) for shard in self._shards.all)
        return number

    def _sweep(self, shard: Shard) -> int:
        """Check some jobs and runs; return how many were mended or set aside. The next sweep continues after them."""
        number = 0
        for turn in range(SWEEP_PAGES):
            runs, lost, jobs = self._swept.get(shard, ("0", "0", "0"))
            jobs_after, altered, jobs_mended = self._call(shard, "sweep_jobs", [jobs, SWEEP_PAGE_RECORDS])
            for job_id in altered:
                number += int(self._call(shard, "set_aside", [raw(job_id), False, f"bad_data: its state {ALTERED}"]))
            runs_after, ids, mended = self._call(shard, "sweep", ["created", runs, SWEEP_PAGE_RECORDS, turn == 0])
            lost_after, others, found = self._call(shard, "sweep", ["calls", lost, SWEEP_PAGE_CALLS, False])
            number += jobs_mended + mended + found + self._set_runs_aside(shard, [*ids, *others])
            self._swept[shard] = runs_after.decode(), lost_after.decode(), jobs_after.decode()
            if self._swept[shard] == ("0", "0", "0"):
                break
        return number

    def _set_runs_aside(self, shard: Shard, ids: Sequence[bytes]) -> int:
        """Replace each altered run by a broken one that names the damage and keeps the old bytes."""
        number: int = 0
        for run_id in ids:
            found = self._call(shard, "set_run_aside", [raw(run_id)], reads=True)
            if found is None:
                continue
            now = self.beat()
            old = run_row(run_id, found[0])
            damage = run_damage(old) or f"its record {ALTERED}, so that it is not where it belongs"
            log.error("run %r is set aside: %s", old.id, damage)
            row = RunRow(
                id=run_id.decode(),
                call=b"",
                state=found[1],
                queue=old.queue,
                lane=old.lane,
                status=old.status,
                run_at=now,
                created_at=old.created_at if 0 < old.created_at <= LATEST_INSTANT else now,
                keep=0,
            )
            broken = self._packer.broken_row(row, f"bad_data: {damage}", now)
            number += int(self._call(shard, "set_run_aside", [raw(run_id), raw(found[1]), new_run(broken)]))
        return number

    def _seen(self, shard: Shard, reply: Sequence[Sequence[Any]], claim: Claim = NO_CLAIM) -> list[RunRow]:
        rows = run_rows(reply, claim)
        if len(self._shards.all) > 1:
            self._shards.found([row.id for row in rows], shard)
        return rows

    def _extend_rows(self, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
        def act(shard: Shard, part: Sequence[BeatRow]) -> list[int]:
            args = [
                int(lease * SECOND),
                [[beat.run_id, beat.token, raw(beat.live) if beat.live else False] for beat in part],
            ]
            answers: list[int] = self._call(shard, "extend", args)
            return answers

        answers = self._shards.ask_for_runs(beats, act, attrgetter("run_id"))
        return [_HOLDS[answer] for answer in answers]

    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        refused: list[str] = []

        def act(shard: Shard, part: Sequence[SettleRow]) -> list[int]:
            away: dict[int, list[RunRow]] = {}
            plain = []
            for number, step in enumerate(part):
                if step.then:
                    here, away[number] = self._split(step.then, shard)
                    plain.append(outcome(step, here, away[number]))
                else:
                    plain.append(outcome(step))
            answers: list[int]
            answers, ended = self._call(shard, "settle", [plain])
            refused.extend(texts(ended))
            self._deliver(shard, [run for number, some in away.items() if answers[number] == 1 for run in some])
            return answers

        answers = self._shards.ask_for_runs(outcomes, act, _RUN_ID)
        return Answers([answer == 1 for answer in answers], refused)

    def _split(self, runs: list[RunRow], shard: Shard) -> tuple[list[RunRow], list[RunRow]]:
        """Split follow-ups into those for this shard and those for others."""
        if len(self._shards.all) == 1:
            return runs, []
        parts: tuple[list[RunRow], list[RunRow]] = ([], [])
        for run in runs:
            parts[not run.after and self._shards.of_new_run(run.id, run.unique) is not shard].append(run)
        return parts

    def _deliver(self, shard: Shard, runs: Sequence[RunRow]) -> None:
        """Add follow-ups in their own shards; if that fails, they stay in the outbox of their parent's shard."""
        if not runs:
            return
        try:
            self._add_run_rows(runs)
            self._call(shard, "clear_outbox", [[run.id for run in runs]])
        except StoreUnavailable as error:  # the settle stands; `prune` delivers them later
            log.warning("%d follow-up runs wait for another shard: %s", len(runs), error)

    def _lapsed_rows(self, limit: int, skip: int) -> list[RunRow]:
        rows: list[RunRow] = []
        if not skip:  # a later page keeps the order of the shards, because `skip` counts through them
            self._searched = self._shards.turn()
        for shard in self._searched:
            if len(rows) < limit:
                skipped, found = self._call(shard, "lapsed", [limit - len(rows), skip])
                skip -= skipped
                rows += self._seen(shard, found)
        return rows

    def prune(self, limit: int = 1000) -> int:
        """Deliver follow-ups that have not reached their own shard, then delete old runs."""
        kept = -(-self.keep_runs // len(self._shards.all))
        count = 0
        for shard in self._shards.turn():
            if len(self._shards.all) > 1:
                self._deliver(shard, restored_outbox(self._call(shard, "take_outbox", [OUTBOX_AFTER_US, SCRIPT_RUNS])))
            if count < limit:
                count += int(self._call(shard, "prune", [limit - count, kept]))
        return count


def _connected(rows: Sequence[Placed]) -> list[list[Placed]]:
    """Group the runs that edges connect; leave out the runs that no edge touches."""
    group_of: dict[str, list[Placed]] = {}
    known = {row.id: row for row in rows}
    for row in rows:
        mine = group_of.setdefault(row.id, [row])
        for edge in row.after:
            if edge.id not in known:
                continue
            other = group_of.setdefault(edge.id, [known[edge.id]])
            if other is not mine:
                mine, other = (mine, other) if len(mine) >= len(other) else (other, mine)
                mine += other
                group_of.update((each.id, mine) for each in other)
    groups = {id(group): group for group in group_of.values()}
    return [group for group in groups.values() if len(group) > 1 or group[0].after]


def _by_urgency(rows: list[RunRow]) -> list[RunRow]:
    rows.sort(key=_RUN_AT)
    rows.sort(key=_PRIORITY, reverse=True)  # a stable sort: equal priorities stay in the order of run times
    return rows
