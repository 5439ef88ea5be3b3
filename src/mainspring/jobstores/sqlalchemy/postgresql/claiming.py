"""Claim runs in PostgreSQL. Each of these statements leases runs and commits by itself:

- `_LOOK_AND_TAKE` is the first look of a claim, and leases the most urgent runs of one want: most claims need no more.
- `_TAKE_AND_NEXT` leases runs of a few lanes, and says when the next ones can be claimed.
- `_TAKE` leases runs of many lanes, after `_FIRST` has found how many to lease from each.

They share the text of `_take`, which leases from any source of lanes, and of `_next_times`.

A claim does not wait for the disk. If the server dies a moment later, the claimed runs are pending again, and nodes
execute them once more. See `docs/decisions/098-claims-and-the-disk.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want
from mainspring.core.run import UNTIL_START_PREFIX
from mainspring.jobstores.records.rows import RunRow
from mainspring.jobstores.sqlalchemy.database import StoreTx
from mainspring.jobstores.sqlalchemy.postgresql.arrays import array
from mainspring.jobstores.sqlalchemy.postgresql.connection import TimedConnection
from mainspring.jobstores.sqlalchemy.steps.claims import (
    FEW_LANES,
    HELD,
    WITH_LEVELS,
    FirstTake,
    Level,
    Look,
    queues_of,
)
from mainspring.jobstores.sqlalchemy.steps.runs import CLAIMED, NEXT_ATTEMPT, Terms, claimed_row
from mainspring.jobstores.sqlalchemy.transaction import Row

__all__ = ["CLOCK", "NOW", "ClaimingTx"]

# Use the start of the statement: it never goes back within a transaction, and the planner can use it for an index.
CLOCK: Final = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
NOW: Final = f"({CLOCK} + %(shift)s::bigint)"
_BEGIN: Final = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {CLOCK}"
_BY_TIME: Final = attrgetter("run_at", "id")
_CLAIMED: Final = ", ".join(CLAIMED)
_DUE_AT: Final = (
    "FROM {{runs}} WHERE status = 'pending' AND at_gate IS NULL AND lane = waiting.name AND priority = {priority}"
    " AND run_at {when} ORDER BY run_at"
)
_PLACE: Final = ("id", "run_at", "lane")
_NOTIFY: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%b::text, %b::text)"
"""A notification is only a hint, so it does not wait for the disk."""
_GIVEN: Final = "unnest(%(lanes)s::text[], %(pages)s::bigint[]) AS waiting(name, page)"
"""A source of lanes: the parameters. `page` is how many runs to take from a lane at most."""
_FIRST: Final = f"""
SELECT first.* FROM {_GIVEN} CROSS JOIN LATERAL (
       SELECT {", ".join(_PLACE)} {_DUE_AT.format(priority="%(priority)s", when="<= %(now)s")} LIMIT waiting.page
       ) AS first"""


def _take(source: str, priority: str, now: str, until: str, limit: str) -> str:
    """Return the statement that leases the most urgent runs of the lanes in `source`, given the other texts in it."""
    due = _DUE_AT.format(priority=priority, when=f"<= {now}")
    # Find the rows by ctid, which cannot change under the lock: then no plan can read more rows than these.
    return f"""
UPDATE {{runs}} SET status = 'running', attempt = {NEXT_ATTEMPT},
       node = %(node)s, token = %(token)s, lease_until = {until}, claimed_at = {now},
       unique_key = CASE WHEN left(unique_key, 1) = '{UNTIL_START_PREFIX}' THEN NULL ELSE unique_key END
 WHERE ctid = ANY(ARRAY(
       SELECT first.ctid FROM {source} CROSS JOIN LATERAL (
              SELECT ctid, run_at {due} LIMIT waiting.page FOR UPDATE SKIP LOCKED) AS first
        ORDER BY first.run_at LIMIT {limit}))
RETURNING {_CLAIMED}"""


def _next_times(source: str, priority: str, now: str, limit: str) -> str:
    """Return two expressions: the time of the first due run that a full claim leaves, and of the first that is not due.

    They see the runs as they were before the claim, so they leave out as many as the claim takes.
    """
    due, later = (_DUE_AT.format(priority=priority, when=f"{sign} {now}") for sign in ("<=", ">"))
    return f"""
    (SELECT first.run_at FROM {source} CROSS JOIN LATERAL (SELECT run_at {due} LIMIT {limit} + 1) AS first
      ORDER BY first.run_at OFFSET {limit} LIMIT 1),
    (SELECT first.run_at FROM {source} CROSS JOIN LATERAL (SELECT run_at {later} LIMIT 1) AS first
      ORDER BY first.run_at LIMIT 1)"""


_TAKE: Final = _take(_GIVEN, "%(priority)s", "%(now)s", "%(until)s", "%(limit)s")
_TAKE_AND_NEXT: Final = f"{_TAKE}, {_next_times(_GIVEN, '%(priority)s', '%(now)s', '%(limit)s')}"
_BEST: Final = "best AS waiting"
"""A source of lanes: those that `_LOOK_AND_TAKE` finds. The next three texts belong to it."""
_LIMIT: Final = "COALESCE((SELECT page FROM best LIMIT 1), 0)"
_PRIORITY: Final = "waiting.priority"
_AT: Final = "(SELECT at FROM clock)"
_WANTED: Final = (
    "SELECT * FROM unnest(%(lanes)s::text[], %(wants)s::integer[], %(pages)s::bigint[]) AS those(name, want, page)"
)
# `best` has the lanes of one want that have due runs of the highest priority. This statement leases those runs if the
# lanes are few, and if neither a limit nor a gate matters, nor runs that the token holds because an earlier claim's
# reply was lost. Keep the statement short: psycopg parses one of more than 4096 characters anew each time.
_LOOK_AND_TAKE: Final = " ".join(
    f"""{WITH_LEVELS % (_WANTED, *["IS NULL"] * 3)},
clock AS (SELECT {NOW} AS at),
asked AS (SELECT name, allowed FROM {{queues}} WHERE name = ANY(%(queues)s)),
limited AS (
    SELECT EXISTS (SELECT 1 FROM {{runs}} WHERE status = 'pending' AND at_gate IS NOT NULL AND lane = ANY(%(lanes)s))
           AS gated,
           EXISTS (SELECT 1 FROM {{runs}} WHERE status = 'running' AND token = %(token)s) AS held),
due AS (SELECT name, want, page, priority, run_at FROM first JOIN wanted ON name = lane WHERE run_at <= {_AT}),
chosen AS (SELECT want, priority FROM due ORDER BY priority DESC, run_at LIMIT 1),
best AS (
    SELECT name, page, priority FROM due JOIN chosen USING (want, priority), limited
     WHERE (SELECT count(*) FROM due JOIN chosen USING (want, priority)) <= {FEW_LANES}
       AND NOT gated AND NOT held AND NOT EXISTS (SELECT 1 FROM asked)),
taken AS ({_take(_BEST, _PRIORITY, _AT, f"{_AT} + %(lease)s::bigint", _LIMIT)})
SELECT {", ".join(["NULL"] * len(CLAIMED))}, json_build_array(
       {_AT}, (SELECT json_object_agg(name, allowed) FROM asked), gated, held,
       ARRAY(SELECT json_build_array(lane, priority, run_at) FROM first WHERE run_at IS NOT NULL),
       (SELECT want FROM chosen), (SELECT priority FROM chosen), ARRAY(SELECT name FROM best),
       {_next_times(_BEST, _PRIORITY, _AT, _LIMIT)},
       CASE WHEN %(alone)s THEN set_config('synchronous_commit', 'off', true) END)
  FROM limited
 UNION ALL SELECT taken.*, NULL FROM taken""".split()
)


class ClaimingTx(StoreTx):
    """A transaction on a pooled connection, or a single statement: the base of all steps, and the claims."""

    @staticmethod
    def many(values: Sequence[Any], /) -> Any:
        return array("text", values)

    def begin(self) -> None:
        """Begin, and read the clock in the same round trip."""
        self.begun = True
        self.cursor.execute(_BEGIN, prepare=False, binary=False)  # the server answers two statements at once in text
        self.cursor.nextset()
        self.now = self.cursor.fetchone()[0] + self.database.shift

    def _fetch(self, statement: str, params: dict[str, Any]) -> list[Row]:
        rows: list[Row] = self.cursor.execute(statement, {**params, "shift": self.database.shift}).fetchall()
        return rows

    def _read_clock(self) -> int:
        now: int = self.cursor.execute(f"SELECT {CLOCK}").fetchone()[0]
        return now

    def notify(self, channel: str, sender: str) -> None:
        """Send a notification to the processes that listen on a channel."""
        connection = self.cursor.connection
        if isinstance(connection, TimedConnection) and connection.is_plain:
            connection.call(_NOTIFY, [channel.encode(), sender.encode()], (1, 1))
        else:
            self.cursor.execute(_NOTIFY, [channel, sender])

    # -- claims ------------------------------------------------------------------------------------------------

    def look(self, wants: Sequence[Want], lanes: list[str], node: str, token: str, lease: float) -> Look:
        places = {lane: (number, max(0, limit)) for number, (some, limit) in enumerate(wants) for lane in some}
        params = {
            "lanes": array("text", lanes),
            "wants": array("integer", [places[lane][0] for lane in lanes]),
            "pages": array("bigint", [places[lane][1] for lane in lanes]),
            "queues": array("text", queues_of(lanes)),
            "node": node,
            "token": token,
            "lease": int(lease * SECOND),
            "alone": self.may_fail and not self.begun,  # a caller's transaction decides how it waits for the disk
        }
        *rows, (*_, said) = sorted(self._fetch(self.texts[_LOOK_AND_TAKE], params), key=_is_last)
        now, limits, gated, is_held, levels, want, priority, best, left, later, _ = said
        held = self.all(HELD, token) if is_held else []
        first_take = None
        if best:
            runs = self._claimed(rows, Terms(node, token, now + int(lease * SECOND), now))
            # Only a full claim leaves due runs; otherwise other nodes are claiming the rest.
            times = [left if len(runs) >= wants[want][1] else None, later]
            first_take = FirstTake(want, priority, best, runs, [at for at in times if at is not None])
        return Look(now, limits or {}, gated, held, levels, first_take)

    def _claimed(self, rows: list[Row], terms: Terms) -> list[RunRow]:
        return sorted([claimed_row(row, terms) for row in rows], key=_BY_TIME)

    def pairs(self, levels: list[Level]) -> list[Any]:
        return [array("text", [lane for lane, _ in levels]), array("integer", [priority for _, priority in levels])]

    def take(self, lanes: list[str], priority: int, room: int, terms: Terms) -> tuple[list[RunRow], list[int] | None]:
        # No transaction is needed: if a reply is lost, the token still holds the claimed runs.
        node, token, until, now = terms
        params = {"node": node, "token": token, "until": until, "now": now, "priority": priority, "limit": room}
        if len(lanes) <= FEW_LANES:
            given = {"lanes": array("text", lanes), "pages": array("bigint", [room] * len(lanes))}
            rows = self._fetch(self.texts[_TAKE_AND_NEXT], {**params, **given})
            if not rows:
                return [], None
            due, later = rows[0][-2:]
            times = [due if len(rows) >= room else None, later]
            return self._claimed(rows, terms), [at for at in times if at is not None]
        # First find how many runs of each lane are wanted, so as not to lock all due runs of each.
        runs: list[RunRow] = []
        while best := self.best_due(_PLACE, lanes, priority, room - len(runs), now):
            wanted = Counter(row[2] for row in best)
            given = {"lanes": array("text", wanted), "pages": array("bigint", wanted.values())}
            rows = self._fetch(self.texts[_TAKE], {**params, **given})
            runs += [claimed_row(row, terms) for row in rows]
            if not rows or len(runs) >= room:  # if others were quicker, look for more
                break
        return sorted(runs, key=_BY_TIME), None

    def first_due(
        self, columns: tuple[str, ...], lanes: list[str], priority: int, now: int, page: int
    ) -> dict[str, Sequence[Sequence[Any]]]:
        if columns is not _PLACE:
            return super().first_due(columns, lanes, priority, now, page)
        found: dict[str, list[Row]] = {lane: [] for lane in lanes}
        given = {"lanes": array("text", lanes), "pages": array("bigint", [page] * len(lanes))}
        for row in self._fetch(self.texts[_FIRST], {**given, "priority": priority, "now": now}):
            found[row[2]].append(row)
        return found  # type: ignore[return-value]


def _is_last(row: Row) -> bool:
    """Return True for the row that has the answers of the look instead of a run."""
    return row[-1] is not None
