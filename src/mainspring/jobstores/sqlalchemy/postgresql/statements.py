"""The statements of PostgreSQL: a batch goes as arrays, and each hot step is one statement that commits by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from mainspring.core.instants import SECOND
from mainspring.core.run import bit_of, is_local
from mainspring.jobstores.base import Answers
from mainspring.jobstores.records.rows import FireRow, JobRow, RunRow, SettleRow
from mainspring.jobstores.sqlalchemy.postgresql.arrays import array
from mainspring.jobstores.sqlalchemy.postgresql.claiming import CLOCK, NOW, ClaimingTx
from mainspring.jobstores.sqlalchemy.postgresql.connection import TimedConnection
from mainspring.jobstores.sqlalchemy.schema import NEVER
from mainspring.jobstores.sqlalchemy.steps.jobs import COLUMNS, MOVED, are_simple
from mainspring.jobstores.sqlalchemy.steps.runs import (
    FRESH,
    INSERTED,
    PLACED,
    WRITTEN,
    are_ends,
    are_plain,
    are_unkeyed,
    fresh_row,
    inserted_row,
    is_fresh,
    placed_row,
    written_row,
)
from mainspring.jobstores.sqlalchemy.transaction import Row, Set
from mainspring.jobstores.sqlalchemy.waiting.judging import LOCKED_COLUMNS
from mainspring.jobstores.sqlalchemy.waking import AWAITED

__all__ = ["PostgreSQLTx"]

_PLAIN: Final = "AND stored.followed = 0 AND stored.at_gate IS NULL"
_TYPES: Final = {
    **dict.fromkeys(("payload", "state", "live", "frame", "info", "cells"), "bytea"),
    **dict.fromkeys(
        ("at", "nominal", "due_at", "version", "incarnation", "run_at", "created_at", "finished_at", "keep"), "bigint"
    ),
    **dict.fromkeys(("lease_until", "claimed_at", "expires_at", "broken_at", "n", "value", "was"), "bigint"),
    **dict.fromkeys(("priority", "attempt", "cancelling", "slot", "waits", "followed", "mask", "allowed"), "integer"),
    **dict.fromkeys(("tat", "line"), "bigint"),
}

_JOB_ID: Final = attrgetter("job_id")
_OF_FRESH: Final = {"status": "'pending'", "attempt": "0", "cancelling": "0"}
_FRESH_VALUES: Final = ", ".join([*(f"%b::{_TYPES.get(name, 'text')}" for name in FRESH), *_OF_FRESH.values()])
_ADD_ONE: Final = (
    f"INSERT INTO {{runs}} ({', '.join((*FRESH, *_OF_FRESH))}) SELECT {_FRESH_VALUES} WHERE NOT EXISTS"
    f" (SELECT 1 FROM {{gone}} WHERE id = %b::text AND expires_at > {CLOCK} + %b::bigint) ON CONFLICT DO NOTHING"
)
_ADD_ONE_FORMATS: Final = [int(_TYPES.get(name, "text") in ("text", "bytea")) for name in (*FRESH, "id", "value")]


class PostgreSQLTx(ClaimingTx):
    """A transaction on a pooled connection, or a single statement."""

    locked_columns = (*LOCKED_COLUMNS, AWAITED)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        if rows:
            values, source, params = _source(columns, rows)
            names = ", ".join(columns)
            self.cursor.execute(
                f"INSERT INTO {self.database.names[table]} ({names}) SELECT {', '.join(values)} FROM {source}", params
            )

    def update(self, table: str, columns: tuple[Set, ...], rows: Sequence[Row]) -> None:
        if rows:
            _, sets, source, params = _sets(columns, rows)
            statement = f"UPDATE {self.database.names[table]} AS stored SET {sets} FROM {source}"
            self.cursor.execute(f"{statement} WHERE stored.id = new.id", params)

    # -- runs --------------------------------------------------------------------------------------------------

    def add_runs(self, runs: Sequence[RunRow]) -> dict[str, str | None]:
        if all(map(is_fresh, runs)) and not any(map(_JOB_ID, runs)):
            return self._add_fresh(runs)
        if not are_unkeyed(runs):
            return super().add_runs(runs)
        columns, values = (INSERTED, inserted_row) if are_plain(runs) else (PLACED, placed_row)
        rows = {run.id: values(run, 0) for run in reversed(runs)}  # the first of an id counts
        statement, params = self._insert_new(columns, [rows[run_id] for run_id in sorted(rows)])
        inserted = {run_id for (run_id,) in self._fetch(f"{statement} RETURNING id", params)}
        self.stirred |= any(run.status == "pending" for run in runs)
        return {run_id: run_id if run_id in inserted else "" for run_id in rows}

    def _add_fresh(self, runs: Sequence[RunRow]) -> dict[str, str | None]:
        """Insert runs that were just enqueued; answer as if all were new, because no caller asks which were."""
        self.stirred = True
        if len(runs) > 1:
            rows = {run.id: fresh_row(run) for run in reversed(runs)}  # the first of an id counts
            statement, params = self._insert_new(FRESH, [rows[run_id] for run_id in sorted(rows)])
            self.cursor.execute(statement, {**params, "shift": self.database.shift})
            return dict(zip(rows, rows, strict=True))
        [run] = runs
        connection = self.cursor.connection
        if isinstance(connection, TimedConnection) and connection.is_plain:
            connection.change(self.texts[_ADD_ONE], _fresh_params(run, self.database.shift), _ADD_ONE_FORMATS)
        else:
            self.cursor.execute(self.texts[_ADD_ONE], (*fresh_row(run), run.id, self.database.shift))
        return {run.id: run.id}

    def _insert_new(self, columns: Sequence[str], rows: Sequence[Row], winners: str = "") -> tuple[str, dict[str, Any]]:
        values, source, params = _source(columns, rows)
        given = dict(zip(columns, values, strict=True))
        if columns is FRESH:
            given |= _OF_FRESH
        where = ""
        if winners:  # fired runs: insert each only if its job's step has won; its lease begins now
            where = f"{given.pop('fired_by')} IN ({winners}) AND "
            given["lease_until"] += f" + {NOW}"
        return (
            f"INSERT INTO {self.database.names['runs']} ({', '.join(given)}) SELECT {', '.join(given.values())}"
            f" FROM {source} WHERE {where}NOT EXISTS (SELECT 1 FROM {self.database.names['gone']} AS gone"
            f" WHERE gone.id = new.id AND gone.expires_at > {NOW}) ON CONFLICT DO NOTHING"
        ), params

    def settle(self, outcomes: Sequence[SettleRow]) -> list[bool]:
        if not are_ends(outcomes):
            return super().settle(outcomes)
        if not self.begun:
            self.begin()
        written = self.finish(outcomes, "")
        followed = {each.run.id: each.run.status for each in outcomes if written.get(each.run.id, (0,))[0]}
        if followed:
            self.release(followed)
        left = {run_id: gate for run_id, (_, gate) in written.items() if gate is not None}
        if left:
            self.run("UPDATE {runs} SET at_gate = NULL WHERE id {in}", self.many(sorted(left)))
        followers = [run for each in outcomes if each.run.id in written for run in each.then]
        if followers:
            self.add_runs(followers)
        self.make_room(Counter(left.values()), ())
        return [each.run.id in written for each in outcomes]

    def finish(self, outcomes: Sequence[SettleRow], only: str = _PLAIN) -> dict[str, tuple[int, str | None]]:
        """Write the ends of runs that their tokens hold, and count them; return the `followed` and the gate of each.

        By default, skip runs with successors or a gate: a statement that commits by itself cannot deal with those.
        """
        self.make_room({}, (each.run for each in outcomes))
        rows = sorted(written_row(each.run, 0) for each in outcomes)
        from_now = ("expires_at", f"LEAST(({NOW} & -2) + {{new}}, {NEVER})")
        values, sets, source, params = _sets([from_now if name == "expires_at" else name for name in WRITTEN], rows)
        # The planner cannot look into CASE, so it finds the rows by id, even if it expects few runs to be running.
        statement = f"""
        WITH ended AS (
            UPDATE {self.database.names["runs"]} AS stored SET {sets} FROM {source} WHERE stored.id = new.id
               AND CASE WHEN stored.status = 'running' AND stored.token = {values["token"]} {only}
                        THEN true ELSE false END
            RETURNING stored.id, stored.status, stored.followed, stored.at_gate),
        counted AS (
            INSERT INTO {self.database.names["totals"]} AS totals (status, slot, n)
            SELECT status, %(slot)s::integer, count(*) FROM ended GROUP BY status
                ON CONFLICT (status, slot) DO UPDATE
               SET n = CASE WHEN totals.n BETWEEN 0 AND {NEVER} THEN totals.n ELSE 0 END + excluded.n)
        SELECT id, {self.texts[AWAITED]} > {NOW}{"" if only else ", followed, at_gate"} FROM ended
        """
        found = self._fetch(statement, {**params, "slot": self.database.slot})
        if found:
            self.ended, self.awaited = True, bool(found[0][1])
        return dict.fromkeys([row[0] for row in found], (0, None)) if only else {row[0]: row[2:] for row in found}

    def release(self, ended: Mapping[str, str]) -> None:
        # This locks the rows in the order of the materialized ids. The planner knows nothing of a flow that was just
        # stored: without LATERAL and ANY, it would read all edges and all runs to join them.
        edges, runs = self.database.names["edges"], self.database.names["runs"]
        statement = f"""
        WITH judged AS MATERIALIZED (
            SELECT succ, count(*) FILTER (WHERE mask & bit <> 0)::integer AS satisfied,
                   min(pred) FILTER (WHERE mask & bit = 0) AS refusing
              FROM unnest(%(ids)s::text[], %(bits)s::integer[]) AS ended(id, bit)
             CROSS JOIN LATERAL (SELECT * FROM {edges} WHERE pred = ended.id OFFSET 0) AS edges
             GROUP BY succ ORDER BY succ)
        UPDATE {runs} AS stored SET refused = refusing,
               at_gate = CASE WHEN refusing IS NULL AND waits <= satisfied THEN gate END,
               waits = CASE WHEN refusing IS NULL THEN GREATEST(waits - satisfied, 0) ELSE 0 END,
               status = CASE WHEN refusing IS NULL AND waits > satisfied THEN 'blocked' ELSE 'pending' END,
               run_at = CASE WHEN refusing IS NOT NULL THEN {NOW} WHEN waits > satisfied THEN run_at
                             WHEN run_at < 0 THEN {NOW} - run_at ELSE GREATEST(run_at, {NOW}) END
          FROM judged WHERE stored.id = judged.succ AND stored.id = ANY(ARRAY(SELECT succ FROM judged ORDER BY succ))
           AND CASE WHEN stored.status = 'blocked' AND stored.waits > 0 THEN true ELSE false END
        RETURNING stored.id, stored.status, stored.refused
        """
        bits = [bit_of(status) for status in ended.values()]
        found = self._fetch(statement, {"ids": list(ended), "bits": bits})
        refused = [run_id for run_id, _, refusing in found if refusing is not None]
        self.note_released(refused, any(status == "pending" for _, status, _ in found))

    def unpark(self, numbers: Mapping[str, int]) -> None:
        runs = self.database.names["runs"]
        parked = f"FROM {runs} r WHERE r.status = 'blocked' AND r.at_gate = place.gate"
        # Find the lanes one by one: reading all parked runs of a gate would take long.
        statement = f"""
        WITH RECURSIVE wanted AS (SELECT * FROM unnest(%(gates)s::text[], %(numbers)s::integer[]) AS wanted(gate, n)),
        place(gate, n, lane) AS (
            SELECT gate, n, (SELECT r.lane FROM {runs} r WHERE r.status = 'blocked' AND r.at_gate = wanted.gate
                              ORDER BY r.lane LIMIT 1) FROM wanted
            UNION ALL
            SELECT gate, n, (SELECT r.lane {parked} AND r.lane > place.lane ORDER BY r.lane LIMIT 1)
              FROM place WHERE lane IS NOT NULL),
        back AS (
            UPDATE {runs} SET status = 'pending', run_at = {NOW} WHERE ctid = ANY(ARRAY(
                   SELECT first.ctid FROM place CROSS JOIN LATERAL (
                          SELECT r.ctid {parked} AND r.lane = place.lane ORDER BY r.priority DESC, r.run_at
                           LIMIT place.n FOR UPDATE SKIP LOCKED) AS first WHERE place.lane IS NOT NULL))
            RETURNING at_gate, lane)
        SELECT gate, lane,
               (SELECT count(*) FROM (SELECT 1 {parked} AND r.lane = place.lane LIMIT n) AS those)::integer,
               (SELECT count(*) FROM back WHERE at_gate = place.gate AND back.lane = place.lane)::integer
          FROM place WHERE lane IS NOT NULL
        """
        gates = sorted(numbers)
        found = self._fetch(statement, {"gates": gates, "numbers": [numbers[gate] for gate in gates]})
        self.stirred |= any(back for *_, back in found)
        # Other transactions have locked the rest. Wait for them: nobody would unpark those runs later.
        if left := [(gate, lane, there - back) for gate, lane, there, back in found if there > back]:
            self.make_pending(self.parked(left))

    # -- jobs --------------------------------------------------------------------------------------------------

    def due(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        if hold <= 0:
            return super().due(limit, hold)
        jobs = self.database.names["jobs"]
        # Only a full page leaves due jobs; otherwise other schedulers have locked the rest.
        statement = f"""
        WITH page AS (
            UPDATE {jobs} SET due_at = {NOW} + %(hold)s::bigint
             WHERE ctid = ANY(ARRAY(SELECT ctid FROM {jobs} WHERE due_at <= {NOW} ORDER BY due_at LIMIT %(limit)s
                                       FOR UPDATE SKIP LOCKED))
            RETURNING {COLUMNS}),
        other AS (
            SELECT due_at FROM {jobs} WHERE id NOT IN (SELECT id FROM page)
               AND due_at > CASE WHEN (SELECT count(*) FROM page) < %(limit)s THEN {NOW} ELSE 0 END
             ORDER BY due_at LIMIT 1)
        SELECT {NOW}, (SELECT due_at FROM other), page.* FROM (SELECT) AS one LEFT JOIN page ON true
        """
        rows = self._fetch(statement, {"hold": int(hold * SECOND), "limit": limit})
        now, next_at = rows[0][:2]
        return now, self.really_due([JobRow(*row[2:]) for row in rows if row[2] is not None], now), next_at

    def fire(
        self, firings: Sequence[FireRow], lease: float, versions: Sequence[int]
    ) -> Answers[tuple[str, ...] | None]:
        if not are_simple(firings):
            return super().fire(firings, lease, versions)
        moved, ended, runs = [], [], []
        queues: set[str] = set()
        for step, version in zip(firings, versions, strict=True):
            if step.next_at is None:
                ended.append((step.job_id, step.version))
            else:
                at = step.next_at
                moved.append((step.job_id, at, step.next_nominal, at, version, step.miss, step.version))
            for run in step.runs:
                run.lease_until = None
                if run.status == "running":
                    run.lease_until = int(lease * SECOND)
                    if not is_local(run.queue):
                        queues.add(run.queue)
                runs.append((*inserted_row(run, 0), step.job_id))
                self.stirred |= run.status == "pending"
        won = self._advance(sorted(moved), sorted(ended), sorted(runs), sorted(queues))
        if any(found.startswith("full:") for found in won):  # nothing is written yet
            return super().fire(firings, lease, versions)
        return Answers(
            tuple(run.id for run in step.runs if f"fire:{run.id}" in won) if f"jobs:{step.job_id}" in won else None
            for step in firings
        )

    def _advance(
        self, moved: Sequence[Row], ended: Sequence[Row], runs: Sequence[Row], queues: Sequence[str]
    ) -> set[str]:
        """Move or delete the due jobs that still have the version that was read; insert the new runs of these winners.

        A row of `moved` has the values for `update` of MOVED, a row of `ended` has the id; both end with the version
        that was read. A row of `runs` ends with the id of the job that fires it, and its lease counts from now. Return
        `jobs:<id>` of the winners and `fire:<id>` of the inserted runs. If one of the `queues` is paused or limited,
        write nothing, and return `full:<name>` of those.
        """
        jobs, parts = self.database.names["jobs"], []
        params: dict[str, Any] = {}
        limited = f"FROM {self.database.names['queues']} WHERE name = ANY(%(queues)s::text[])"
        is_open = f"AND NOT EXISTS (SELECT {limited})" if queues else ""
        unchanged = (
            f"CASE WHEN stored.version = {{was}} AND stored.at <= {NOW} {is_open} THEN true ELSE false END"
            " RETURNING stored.id"
        )
        if moved:
            found, source, some = _source(("id", *MOVED, "was"), moved, "step")
            sets = ", ".join(f"{column} = {value}" for column, value in zip(MOVED, found[1:-1], strict=True))
            same = unchanged.format(was=found[-1])
            parts.append(f"UPDATE {jobs} AS stored SET {sets} FROM {source} WHERE stored.id = step.id AND {same}")
            params |= some
        if ended:
            found, source, some = _source(("id", "was"), ended, "last")
            same = unchanged.format(was=found[-1])
            parts.append(f"DELETE FROM {jobs} AS stored USING {source} WHERE stored.id = last.id AND {same}")
            params |= some
        names = [f"jobs{number}" for number in range(len(parts))]
        won = " UNION ALL ".join(f"SELECT id FROM {name}" for name in names)
        if runs:
            part, some = self._insert_new((*INSERTED, "fired_by"), runs, won)
            parts.append(f"{part} RETURNING id")
            names.append("fired")
            params |= some
        statement = ", ".join(f"{name} AS ({part})" for name, part in zip(names, parts, strict=True))
        answers = " UNION ALL ".join(f"SELECT '{name[:4]}:' || id FROM {name}" for name in names)
        if queues:
            answers += f" UNION ALL SELECT 'full:' || name {limited}"
            params["queues"] = list(queues)
        return {found for (found,) in self._fetch(f"WITH {statement} {answers}", params)}


def _fresh_params(run: RunRow, shift: int) -> list[bytes | None]:
    """Return `fresh_row`, the id and the shift of the clock in the form of `TimedConnection.change`."""
    run_id, group, task, label = run.id.encode(), run.group, run.task, run.label
    return [
        run_id, run.call, run.state, run.queue.encode(), run.lane.encode(), b"%d" % run.priority, b"%d" % run.run_at,
        b"%d" % run.keep, b"%d" % run.created_at, None if group is None else group.encode(),
        None if task is None else task.encode(), None if label is None else label.encode(), run_id, b"%d" % shift,
    ]  # fmt: skip


def _source(columns: Sequence[str], rows: Sequence[Row], name: str = "new") -> tuple[list[str], str, dict[str, Any]]:
    """Return the expression of each column, the FROM clause for them, and the parameters of both.

    A column with the same value in all rows, as most have in a batch, is one parameter; the others are arrays.
    """
    varying: list[bool] = []
    params: dict[str, Any] = {}
    for column, given in zip(columns, zip(*rows, strict=True), strict=True):
        # The first column is the key.
        varies = not varying or given[0] != given[-1] or given.count(given[0]) < len(given)
        varying.append(varies)
        many = varies and len(given) > 1
        params[f"{name}_{column}"] = array(_TYPES.get(column, "text"), given) if many else given[0]
    values, source = _source_text(tuple(columns), tuple(varying), len(rows) > 1, name)
    return list(values), source, params


@lru_cache(1000)
def _source_text(
    columns: tuple[str, ...], varying: tuple[bool, ...], many: bool, name: str
) -> tuple[tuple[str, ...], str]:
    values, arrays, names = [], [], []
    for column, varies in zip(columns, varying, strict=True):
        param = f"%({name}_{column})b::{_TYPES.get(column, 'text')}"
        values.append(f"{name}.{column}" if varies else param)
        if varies:
            names.append(column)
            arrays.append(f"{param}[]")
    if many:
        return tuple(values), f"unnest({', '.join(arrays)}) AS {name}({', '.join(names)})"
    return tuple(values), f"(SELECT {arrays[0].removesuffix('[]')}) AS {name}({columns[0]})"


def _sets(columns: Sequence[Set], rows: Sequence[Row]) -> tuple[dict[str, str], str, str, dict[str, Any]]:
    """Return the new value of each column, the SET clause, the FROM clause, and the parameters."""
    names = ["id", *(column if isinstance(column, str) else column[0] for column in columns)]
    found, source, params = _source(names, rows)
    values = dict(zip(names, found, strict=True))
    sets = []
    for column in columns:
        name, said = (column, "{new}") if isinstance(column, str) else column
        sets.append(f"{name} = {said.format(new=values[name], old=f'stored.{name}')}")
    return values, ", ".join(sets), source, params
