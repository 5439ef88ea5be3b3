"""Find, count and prune runs, and describe queues and nodes, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.lanes import queue_of
from mainspring.core.run import HOLDS, Run, Status
from mainspring.jobstores.base import Generation, NodeInfo, QueueInfo, RunQuery, RunStanding, Stats
from mainspring.jobstores.records.rows import FINAL_VALUES, STATUS_VALUES, RunRow
from mainspring.jobstores.sqlalchemy.meta import number
from mainspring.jobstores.sqlalchemy.schema import ENDED_BADLY, HAS_ENDED_BADLY, NEVER
from mainspring.jobstores.sqlalchemy.steps.runs import RUN_COLUMNS, forget, run_row
from mainspring.jobstores.sqlalchemy.transaction import Tx
from mainspring.jobstores.sqlalchemy.waiting.edges import pinned
from mainspring.jobstores.sqlalchemy.waiting.gates import GateVerbs, forget_gates

__all__ = [
    "beat",
    "find_runs",
    "generations",
    "get_runs",
    "leave",
    "nodes",
    "prune",
    "standings",
    "stats",
]

FEW_RUNS: Final = 20_000
"""Sort up to this many runs of a status by age, rather than search all runs for them."""
IDS_REMEMBERED: Final = 100_000
"""Remember at most this many ids of deleted runs."""
LONGEST_NODE_TTL_US: Final = 30 * 86400 * SECOND
"""No node announces itself for longer than this."""
RETENTION_SLACK_US: Final = 60 * SECOND
"""The clocks that set the end of a run and the end of its retention may differ by this much."""
LONGEST_RETENTION_US: Final = 10**17
"""Keep a run for at most this many microseconds: 3,000 years."""
PINNED_US: Final = 3600 * SECOND
"""Look again after this time at a run that a successor still needs."""
_PRUNED: Final = ("id", "status", "finished_at", "keep", "followed")
_COUNTED: Final = f"expires_at < {NEVER} AND (expires_at & 1) = 0"
"""Selects finished runs without an explicit retention by the index of `expires_at` alone, so counting reads no row."""
_UNPINNED: Final = (
    "(followed = 0 OR NOT EXISTS (SELECT 1 FROM {edges} e JOIN {runs} s ON s.id = e.succ"
    f" WHERE e.pred = {{runs}}.id AND (s.expires_at IS NULL OR (e.mask & {HOLDS}) <> 0)))"
)
_SURPLUS_COLUMNS: Final = ("id", "followed")
_SURPLUS: Final = (
    f"FROM {{runs}} WHERE {_COUNTED} AND status IN ('succeeded', 'failed', 'cancelled', 'missed') AND {_UNPINNED}"
    " AND expires_at < ? ORDER BY expires_at LIMIT ? {skip}"
)


def get_runs(tx: Tx, run_ids: Sequence[str]) -> list[RunRow]:
    """Read runs by id."""
    rows = tx.all(f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE id {{in}}", tx.many(sorted(set(run_ids))))
    return list(map(run_row, rows))


def standings(tx: Tx, run_ids: Sequence[str]) -> list[RunStanding | None]:
    """Read the statuses of runs; None for a run that is not in the store."""
    rows = tx.all("SELECT id, status, refused FROM {runs} WHERE id {in}", tx.many(sorted(set(run_ids))))
    # Leave out an altered status: a waiting caller looks again after the sweep.
    found = {
        run_id: RunStanding(Status(status), refused) for run_id, status, refused in rows if status in STATUS_VALUES
    }
    return list(map(found.get, run_ids))


def find_runs(tx: Tx, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
    """Read matching runs, newest first."""
    query = replace(query, status=tuple(dict.fromkeys(query.status)))
    if query.job_id is query.group is query.after is query.gate is None and query.status:
        if all(status.value in ENDED_BADLY for status in query.status):
            # Read one status at a time: the index has the runs of each in the wanted order.
            parts = [_find(tx, replace(query, status=(each,)), after, limit) for each in query.status]
            return nlargest(limit, chain.from_iterable(parts), key=lambda row: (row.created_at, row.id))
        if Status.SUCCEEDED not in query.status and _are_few(tx, query):
            return _find_few(tx, query, after, limit)
        if Status.PENDING in query.status and Status.SUCCEEDED not in query.status and tx.database.kind == "postgresql":
            # PostgreSQL estimates how many there are of each, and chooses: walk through all by age, or sort the few.
            halves = [(replace(query, status=(each,)), part) for each in query.status for part in _parts_of(each)]
            found = [_find(tx, half, after, limit, part) for half, part in halves]
            return nlargest(limit, chain.from_iterable(found), key=lambda row: (row.created_at, row.id))
    return _find(tx, query, after, limit)


def _find(tx: Tx, query: RunQuery, after: Run | None, limit: int, part: str = "1 = 1") -> list[RunRow]:
    where, params = _where(tx, query, after)
    statement = f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE {part} AND {where} ORDER BY created_at DESC, id DESC LIMIT ?"
    return [run_row(row) for row in tx.all(statement, *params, limit)]


def made_behind(tx: Tx, after: Run | None, number: int) -> int | None:
    """Return the creation time of the run `number` places behind `after`, or behind the newest; read only an index."""
    where, params = ("1 = 1", []) if after is None else ("created_at <= ?", [after.created_at])
    statement = f"SELECT created_at FROM {{runs}} WHERE {where} ORDER BY created_at DESC LIMIT 1 OFFSET ?"
    found = tx.all(statement, *params, number)
    return found[0][0] if found else None


def _are_few(tx: Tx, query: RunQuery) -> bool:
    """Return True if SQLite should read all runs of these statuses and sort them.

    SQLite does not know how many there are. By itself it walks through all runs by age: if only the last of a million
    matches, it reads them all.
    """
    if tx.database.kind != "sqlite":
        return False
    statement = "SELECT count(*) FROM (SELECT 1 FROM {{runs}} WHERE {} LIMIT ?)"
    parts = [part for each in query.status for part in _parts_of(each)]
    return all(tx.all(statement.format(part), FEW_RUNS)[0][0] < FEW_RUNS for part in parts)


def _parts_of(status: Status) -> tuple[str, ...]:
    """Return conditions that select all runs of a status by partial indexes: pending runs need two of them."""
    term = f"status = '{status.value}'"
    return (f"{term} AND at_gate IS NULL", f"{term} AND at_gate IS NOT NULL") if status is Status.PENDING else (term,)


def _find_few(tx: Tx, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
    found: list[Any] = []
    for each in query.status:
        where, params = _where(tx, RunQuery(status=(each,), queue=query.queue), after)
        for part in _parts_of(each):
            # The plus keeps SQLite from using the index by age. Sort only the ids: the records are large.
            statement = "SELECT created_at, id FROM {runs} WHERE %s AND %s ORDER BY +created_at DESC, id DESC LIMIT ?"
            found += tx.all(statement % (part, where), *params, limit)
    rows = {row.id: row for row in get_runs(tx, [run_id for _, run_id in nlargest(limit, found)])} if found else {}
    return sorted(rows.values(), key=lambda row: (row.created_at, row.id), reverse=True)


def _where(tx: Tx, query: RunQuery, after: Run | None = None) -> tuple[str, list[Any]]:
    terms: list[str] = ["1 = 1"]
    params: list[Any] = []
    if query.status:  # as literals: partial indexes are used only where a statement repeats their conditions
        values = [status.value for status in query.status]
        terms.append(f"status = '{values[0]}'" if len(values) == 1 else f"status IN {tuple(values)}")
        if all(value in ENDED_BADLY for value in values):
            terms.append(HAS_ENDED_BADLY)
    for column, value in (("queue", query.queue), ("group_id", query.group), ("job_id", query.job_id)):
        if value is not None:
            terms.append(f"{column} = ?")
            params.append(value)
    if query.gate is not None:
        terms.append("gate = ? AND gate IS NOT NULL AND expires_at IS NULL")
        params.append(query.gate)
    if query.after is not None:
        # Read the ids first, so that no plan can search all runs for them.
        ids = [run_id for (run_id,) in tx.all("SELECT succ FROM {edges} WHERE pred = ?", query.after)]
        terms.append("id {in}" if ids else "1 = 0")
        params += [tx.many(sorted(ids))] if ids else []
    if query.since is not None:
        terms.append("created_at >= ?")
        params.append(query.since)
    if after is not None:
        terms.append("created_at <= ? AND (created_at < ? OR id < ?)")
        params += [after.created_at, after.created_at, after.id]
    return " AND ".join(terms), params


def prune(tx: GateVerbs, limit: int, keep_runs: int) -> int:
    """Delete finished runs whose retention is over, then the oldest above `keep_runs`; forget old ids.

    Spare runs that their successors still need, and look at them again later.
    """
    now = tx.database.trusted_now(tx)
    rows = tx.table(_PRUNED, "FROM {runs} WHERE expires_at <= ? ORDER BY expires_at LIMIT ? {skip}", now, limit)
    ids, spared = _old(rows, now)
    # Ask in a later statement than the one that locks the runs: since the lock, nobody can add an edge from them.
    pins = pinned(tx, sorted({row[0] for row in rows if row[4]}.intersection(ids)))
    ids = [run_id for run_id in ids if run_id not in pins]
    spared += [(row[0], ((now + PINNED_US) & -2) + (row[3] & 1)) for row in rows if row[0] in pins]
    if spared:
        tx.update("runs", ("expires_at",), sorted(spared))
    forget(tx, sorted(ids))
    if len(ids) < limit:
        rows = _surplus(tx, keep_runs, limit - len(ids))
        pins = pinned(tx, sorted(run_id for run_id, followed in rows if followed))
        more = sorted(run_id for run_id, _ in rows if run_id not in pins)
        forget(tx, more)
        ids += more
    _forget_ids(tx, 2 * limit, now)
    forget_gates(tx, limit)
    return len(ids)


def _old(rows: Sequence[Sequence[Any]], now: int) -> tuple[list[str], list[tuple[str, int | None]]]:
    """Return the runs that are really past their retention, and the right `expires_at` of those with an altered one."""
    ids: list[str] = []
    spared: list[tuple[str, int | None]] = []
    for run_id, status, finished_at, keep, _ in rows:
        if status == Status.BROKEN.value:
            spared.append((run_id, NEVER))
        elif status not in FINAL_VALUES or finished_at is None:
            spared.append((run_id, None))
        elif finished_at + min(max(0, keep), LONGEST_RETENTION_US) > now + RETENTION_SLACK_US:
            spared.append((run_id, (finished_at & -2) + min(max(0, keep), LONGEST_RETENTION_US)))
        else:
            ids.append(run_id)
    return ids, spared


def _surplus(tx: Tx, keep_runs: int, limit: int) -> Sequence[Sequence[Any]]:
    """Lock and read the finished runs above `keep_runs`, oldest first.

    Counting reads an index entry for each kept run. So count again only after enough runs have ended to fill the room
    that is left, and at least one in a hundred of `keep_runs`. If there are more than one call deletes, remember their
    times: these runs remain surplus, however many of them other nodes delete.
    """
    database = tx.database
    if database.surplus_before is not None:
        rows = tx.table(_SURPLUS_COLUMNS, _SURPLUS, database.surplus_before, limit)
        if rows:
            return rows
        database.surplus_before = None
    ended = sum(_totals(tx).values())
    if ended < database.count_again_at:
        return ()
    [(kept,)] = tx.all(
        f"SELECT count(*) FROM (SELECT 1 AS one FROM {{runs}} WHERE {_COUNTED} LIMIT ?) AS kept", keep_runs + limit
    )
    surplus: int = kept - keep_runs
    database.count_again_at = 0 if surplus >= limit else int(ended) + max(-surplus, keep_runs // 100)
    if surplus >= limit:
        newest = f"SELECT expires_at FROM {{runs}} WHERE {_COUNTED} ORDER BY expires_at DESC LIMIT 1 OFFSET ?"
        [(database.surplus_before,)] = tx.all(newest, keep_runs)
    return tx.table(_SURPLUS_COLUMNS, _SURPLUS, NEVER, surplus) if surplus > 0 else ()


def _forget_ids(tx: Tx, limit: int, now: int) -> None:
    """Forget the ids of runs that were deleted long ago, and the oldest ids above IDS_REMEMBERED; count them rarely."""
    database, number = tx.database, limit
    old = tx.all("SELECT id FROM {gone} WHERE expires_at <= ? ORDER BY expires_at LIMIT ? {skip}", now, limit)
    if len(old) < limit and database.forgotten >= IDS_REMEMBERED // 10:
        most = IDS_REMEMBERED + 10 * limit
        [(known,)] = tx.all("SELECT count(*) FROM (SELECT 1 AS one FROM {gone} LIMIT ?) AS known", most)
        number = known - IDS_REMEMBERED
        if number > len(old):
            old = tx.all("SELECT id FROM {gone} ORDER BY expires_at LIMIT ? {skip}", number)
        if known < most:
            database.forgotten = 0
    if old:
        tx.run("DELETE FROM {gone} WHERE id {in}", tx.many(sorted(run_id for (run_id,) in old)))


# -- queues ---------------------------------------------------------------------------------------------------------


def _queues(tx: Tx) -> list[QueueInfo]:
    """Describe the queues that hold unfinished runs or have a limit."""
    now = tx.now
    found: dict[str, dict[str, Any]] = {
        name: {"limit": allowed} for name, allowed in tx.all("SELECT name, allowed FROM {queues}")
    }
    for lane, waiting, total, first in (row for part in _parts_of(Status.PENDING) for row in _pending(tx, part, now)):
        queue = found.setdefault(queue_of(lane), {})
        queue["waiting"] = queue.get("waiting", 0) + int(waiting)
        queue["delayed"] = queue.get("delayed", 0) + total - int(waiting)
        if first <= now:
            queue["oldest_at"] = min(first, queue.get("oldest_at", first))
    for name, blocked in tx.all("SELECT queue, count(*) FROM {runs} WHERE status = 'blocked' GROUP BY queue"):
        found.setdefault(name, {}).update(blocked=blocked)
    for name, running in tx.all("SELECT queue, count(*) FROM {runs} WHERE status = 'running' GROUP BY queue"):
        found.setdefault(name, {}).update(running=running)
    return [QueueInfo(name=name, **found[name]) for name in sorted(found)]


def _pending(tx: Tx, part: str, now: int) -> list[Any]:
    # Group by lane, not by queue: the index of claims has all these values in order, so no row has to be read.
    waiting = "sum(CASE WHEN run_at <= ? THEN 1 ELSE 0 END)"
    counted = f"SELECT lane, {waiting}, count(*), min(run_at) FROM {{runs}} WHERE {part} GROUP BY lane"
    return tx.all(counted, now)


# -- nodes and counters --------------------------------------------------------------------------------------------


def beat(tx: Tx, node: NodeInfo, ttl: float) -> None:
    """Announce a node for `ttl` seconds; delete the nodes whose time is over."""
    info = msgspec.json.encode(msgspec.structs.replace(node, beat_at=tx.now))
    until = tx.now + int(ttl * SECOND)
    if not tx.run("UPDATE {nodes} SET info = ?, expires_at = ? WHERE id = ?", info, until, node.id):
        tx.insert("nodes", ("id", "info", "expires_at"), [(node.id, info, until)])
    tx.run("DELETE FROM {nodes} WHERE expires_at <= ? OR expires_at > ?", tx.now, tx.now + LONGEST_NODE_TTL_US)


def leave(tx: Tx, node: NodeInfo) -> int:
    """Remove a node; return now."""
    tx.run("DELETE FROM {nodes} WHERE id = ?", node.id)
    return tx.now


def nodes(tx: Tx) -> list[NodeInfo]:
    """Read the living nodes."""
    rows = tx.all("SELECT info FROM {nodes} WHERE expires_at > ? ORDER BY id", tx.now)
    found = []
    for (said,) in rows:
        with suppress(msgspec.MsgspecError, TypeError, ValueError):  # it was altered: the next heartbeat corrects it
            found.append(msgspec.json.decode(bytes(said), type=NodeInfo))
    return found


def stats(tx: Tx, query: RunQuery | None) -> Stats:
    """Count the runs that match; without a query, count queues, ended runs and jobs."""
    if query is not None:
        return _count(tx, query)
    [(jobs,)] = tx.all("SELECT count(*) FROM {jobs}")
    limits: dict[str, int] = dict(tx.all("SELECT id, allowed FROM {limits} WHERE allowed IS NOT NULL ORDER BY id"))
    return Stats(queues=_queues(tx), totals=_totals(tx), jobs=jobs, limits=limits)


def _count(tx: Tx, query: RunQuery) -> Stats:
    """Count matching runs, one status after the other, because each status has separate indexes."""
    plain = query.job_id is query.group is query.after is query.gate is None
    if plain and query.cap is not None and (Status.SUCCEEDED in query.status or not query.status):
        return _count_newest(tx, query, query.cap)
    if query.status and plain:
        parts = [(replace(query, status=(each,)), part) for each in query.status for part in _parts_of(each)]
    else:
        parts = [(query, "1 = 1")]
    total, most = 0, NEVER if query.cap is None else query.cap + 1
    for one, part in parts:
        where, params = _where(tx, one)
        counted = f"SELECT 1 AS one FROM {{runs}} WHERE {part} AND {where} LIMIT ?"
        total += tx.all(f"SELECT count(*) FROM ({counted}) AS found", *params, most)[0][0]
    return Stats(matching=total)


def _count_newest(tx: Tx, query: RunQuery, cap: int) -> Stats:
    """Count only among the newest runs: no index knows which runs have succeeded, and few of a million may match."""
    where, params = _where(tx, query)
    newest = "SELECT status, queue FROM {runs} ORDER BY created_at DESC LIMIT ?"
    counted = f"SELECT coalesce(sum(CASE WHEN {where} THEN 1 ELSE 0 END), 0), count(*) FROM ({newest}) AS newest"
    most = cap + cap // 2
    [(matching, looked_at)] = tx.all(counted, *params, most)
    return Stats(matching=int(matching), complete=looked_at < most)


def _totals(tx: Tx) -> dict[str, int]:
    totals = dict.fromkeys(sorted(FINAL_VALUES), 0)
    for status, n in tx.all("SELECT status, n FROM {totals}"):  # sum in Python, where no sum overflows
        if status in totals and 0 <= n < NEVER:
            totals[status] += n
    return totals


def generations(tx: Tx) -> tuple[Generation, ...]:
    """Return the identity of these tables, and their last version, which tells their state from an older one."""
    return (Generation(str(number(tx, "made") or ""), number(tx, "versions") or 0),)
