"""Read django-q's tables, and store their tasks as runs."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.core import signing
from django.db import connections, transaction
from django.utils.timezone import is_naive

from mainspring.core.run import Run
from mainspring.django.application import app
from mainspring.django.conf import conf
from mainspring.django.importing.ended import TASK_FIELDS, ended_run
from mainspring.django.importing.packages import unpack_text
from mainspring.django.importing.pickles import MOST_BYTES, UnreadableError, function_name, plain, unpickled
from mainspring.errors import MainspringError
from mainspring.tasks import async_task
from mainspring.tasks.options import find_task

__all__ = ["Importer", "enqueue_payload"]

QUEUED: Final = "django_q_ormq"
FINISHED: Final = "django_q_task"
SCHEDULED: Final = "django_q_schedule"
OPTIONS: Final = ("group", "hook", "timeout", "save", "ack_failure", "cached")
BATCH_RUNS: Final = 500
SCHEDULE_COLUMNS: Final = (
    *("name", "func", "hook", "args", "kwargs", "schedule_type", "minutes", "repeats", "next_run", "cron", "cluster"),
    "intended_date_kwarg",
)
FAULTS: Final = (UnreadableError, MainspringError, LookupError, TypeError, ValueError)


class Importer:
    """An importer of django-q's tasks from one database; without `write` it only looks."""

    def __init__(self, using: str, *, write: bool) -> None:
        self.using, self.write = using, write
        self.refused: list[str] = []
        """The tasks that were not taken over, with the reasons."""

    def _rows(self, table: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        connection = connections[self.using]
        if table not in connection.introspection.table_names():
            return
        quote = connection.ops.quote_name
        with connection.cursor() as cursor:
            known = {column.name for column in connection.introspection.get_table_description(cursor, table)}
            wanted = [column for column in columns if column in known]
            cursor.execute(f"SELECT {', '.join(map(quote, wanted))} FROM {quote(table)} ORDER BY id")
            rows = cursor.fetchall()
        for row in rows:
            yield dict(zip(wanted, row, strict=True))

    # -- queued ------------------------------------------------------------------------------------------------

    def take_queued(self) -> int:
        """Enqueue the waiting tasks under their ids, and delete their rows in the same transaction."""
        number = 0
        for row in self._rows(QUEUED, ("id", "key", "payload")):
            try:
                with transaction.atomic(using=self.using):
                    self._enqueue(row)
            except FAULTS as error:
                self.refused.append(f"queued task {row['id']}: {error}")
            else:
                number += 1
        return number

    def _enqueue(self, row: dict[str, Any]) -> None:
        func, args, kwargs, options = _call(unpickled(_unsigned(row["payload"])), row["key"])
        find_task(app, func)  # raises if no worker could find it either
        if not self.write:
            return
        async_task(func, *args, **kwargs, q_options=options)
        quote = connections[self.using].ops.quote_name
        with connections[self.using].cursor() as cursor:
            cursor.execute(f"DELETE FROM {quote(QUEUED)} WHERE id = %s", [row["id"]])

    # -- finished ----------------------------------------------------------------------------------------------

    def take_finished(self) -> int:
        """Store finished tasks as ended runs under their ids; skip ids that exist already."""
        runs = []
        for row in self._rows(FINISHED, TASK_FIELDS):
            try:
                runs.append(app.store.pack_run(_ended_run(row)))
            except FAULTS as error:
                self.refused.append(f"finished task {row['id']}: {error}")
        number = 0
        for start in range(0, len(runs), BATCH_RUNS):
            page = runs[start : start + BATCH_RUNS]
            known = app.store.standings([run.id for run in page])
            new = [run for run, standing in zip(page, known, strict=True) if standing is None]
            number += len(new)
            if self.write and new:
                app.store.add_runs(new)
        return number

    # -- schedules ---------------------------------------------------------------------------------------------

    def take_schedules(self, model: Any) -> int:
        """Copy the schedules, unless the model uses their table; skip those that exist already."""
        if model._meta.db_table == SCHEDULED:
            return 0
        number = 0
        for row in self._rows(SCHEDULED, SCHEDULE_COLUMNS):
            made = model(**{**row, "next_run": _aware(row["next_run"])})
            same = {name: getattr(made, name) for name in SCHEDULE_COLUMNS if name not in ("next_run", "repeats")}
            try:
                made.clean()
                if model.objects.filter(**same).exists():
                    continue
                if self.write:
                    made.save()
            except Exception as error:  # a form's error shares no base with the other errors
                self.refused.append(f"schedule {row['name'] or row['func']}: {error}")
            else:
                number += 1
        return number


def enqueue_payload(key: str | None, payload: str) -> str:
    """Enqueue the call in a payload of django-q, or of our `SignedPackage`; return the run's id."""
    try:
        described = unpack_text(payload)
    except signing.BadSignature:
        described = unpickled(_unsigned(payload))
    func, args, kwargs, options = _call(described, key)
    return async_task(func, *args, **kwargs, q_options=options)


def _call(task: Any, key: str | None) -> tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Return the function, arguments, keyword arguments and options of a task that django-q describes as a dict."""
    if not isinstance(task, dict):
        raise UnreadableError("its payload is not a task")
    args, kwargs = plain(task.get("args") or (), "argument"), plain(task.get("kwargs") or {}, "argument")
    options = {name: task[name] for name in OPTIONS if task.get(name) is not None}
    if "hook" in options:
        options["hook"] = function_name(options["hook"])
    if task.get("chain"):
        options["chain"] = [_step(step) for step in task["chain"]]
    options |= {"task_name": task.get("name"), "id": task.get("id"), "cluster": _queue(key)}
    known = {name: value for name, value in options.items() if value is not None}
    return function_name(task.get("func")), tuple(args), dict(kwargs), known


def _unsigned(payload: str) -> bytes:
    """Return the pickle in a payload of django-q; raise UnreadableError unless this project signed it."""
    salt = (getattr(settings, "Q_CLUSTER", None) or {}).get("name", "default")
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        try:
            value = signing.TimestampSigner(key=key, salt=salt).unsign(payload).encode()
            break
        except signing.BadSignature:
            continue
    else:
        raise UnreadableError("its signature is not one of this project; SECRET_KEY and Q_CLUSTER['name'] have to be")
    data: bytes = signing.b64_decode(value.removeprefix(b"."))
    if not value.startswith(b"."):
        return data
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(data, MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise UnreadableError(f"it unpacks to more than {MOST_BYTES:,} bytes")
    return unpacked


def _step(step: Any) -> Any:
    """Return a step of a chain, with its function as a name."""
    if not isinstance(step, tuple | list):
        return function_name(step)
    func, *rest = step
    return (function_name(func), *plain(tuple(rest), "chain"))


def _queue(key: str | None) -> str:
    """Return our queue for a django-q cluster, whose default cluster has the project's name."""
    given = getattr(settings, "Q_CLUSTER", None) or {}
    default = given.get("cluster_name", given.get("name", "default"))
    return conf().default_queue if not key or key == default else str(key)


def _ended_run(row: dict[str, Any]) -> Run:
    args, kwargs = _kept(row["args"], ()), _kept(row["kwargs"], {})
    result = _kept(row["result"], None)
    values = {
        **row,
        "args": args if isinstance(args, tuple) else (args,),
        "kwargs": kwargs if isinstance(kwargs, dict) else {"kwargs": kwargs},
        "result": result,
        "cluster": _queue(row.get("cluster")),
        "started": _aware(row["started"]),
        "stopped": _aware(row["stopped"]),
        "success": bool(row["success"]),
    }
    return ended_run(values)


def _kept(text: str | None, empty: Any) -> Any:
    """Return the value in a pickled column, or a text that says why it cannot be stored."""
    if text is None:
        return empty
    try:
        return plain(unpickled(base64.b64decode(text)), "it")
    except (UnreadableError, ValueError) as error:
        return f"<{error}>"


def _aware(value: Any) -> datetime | None:
    """Return an aware time from raw SQL: SQLite gives text, and all databases give UTC."""
    if value is None:
        return None
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=UTC) if is_naive(moment) else moment
