"""Jobs as text: in words for people, as JSON for another scheduler."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TextIO
from uuid import UUID

import msgspec

from mainspring import __version__
from mainspring.core.job import Job
from mainspring.core.policy import DEFAULT_POLICY, Backoff
from mainspring.core.references import portable_call
from mainspring.core.run import Call
from mainspring.core.validation import POLICY_FIELDS, make_policy
from mainspring.errors import CallableReferenceError, ConfigurationError
from mainspring.triggers import trigger_from_data

__all__ = ["export_jobs", "import_jobs", "print_jobs"]

# A datetime is a date too, so it comes first.
_AS_TEXT: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (datetime, lambda value: value.isoformat()),
    (date, lambda value: value.isoformat()),
    (time, lambda value: value.isoformat()),
    (timedelta, lambda value: value // timedelta(microseconds=1)),
    (Decimal, str),
    (UUID, str),
    (bytes, lambda value: value.hex()),
)
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": bytes.fromhex,
    "timedelta": lambda seconds: timedelta(microseconds=int(seconds)),
}


def print_jobs(sections: Iterable[tuple[str, list[Job]]], out: TextIO) -> None:
    """Print jobs under the titles of where they are."""
    for title, jobs in sections:
        print(f"{title}:", file=out)
        for job in jobs:
            print(f"    {job}", file=out)
        if not jobs:
            print(f"    No {'pending' if title == 'Pending jobs' else 'scheduled'} jobs", file=out)


def export_jobs(jobs: list[Job], outfile: Any) -> None:
    """Write jobs as JSON; nothing is written if one of them cannot be."""
    document = {"mainspring": 1, "version": __version__, "jobs": [_to_data(job) for job in jobs]}
    text = json.dumps(document, indent=1)
    with _opened(outfile, "w") as stream:
        stream.write(text + "\n")


def import_jobs(infile: Any) -> list[Job]:
    """Read jobs; nothing is returned if one of them is wrong."""
    with _opened(infile, "r") as stream:
        text = stream.read()
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"this is not a file of exported jobs: {error}") from error
    if isinstance(document, dict) and "scheduler_version" in document:
        raise ConfigurationError("this file was exported by APScheduler and holds pickles, which are not opened here")
    if not isinstance(document, dict) or document.get("mainspring") != 1:
        raise ConfigurationError("this is not a file of exported jobs, or one of a newer mainspring")
    return [_from_data(data) for data in document.get("jobs", []) if isinstance(data, dict)]


def _opened(file: Any, mode: str) -> Any:
    if isinstance(file, (str, os.PathLike)):
        return open(file, mode, encoding="utf-8")
    return nullcontext(file)


def _to_data(job: Job) -> dict[str, Any]:
    where = f"job {job.id!r}"
    try:
        ref, args = portable_call(job.call.func, job.args)
    except (CallableReferenceError, LookupError) as error:
        raise ValueError(f"{where} cannot be exported: {error}") from error
    moment = job.next_run_time
    return {
        "id": job.id,
        "name": job.name,
        "func": ref,
        "args": [_plain(value, f"{where}: args[{n}]") for n, value in enumerate(args)],
        "kwargs": {key: _plain(value, f"{where}: kwargs.{key}") for key, value in job.kwargs.items()},
        "trigger": job.trigger.to_data(),
        "executor": job.executor,
        "queue": job.queue,
        "misfire_grace_time": job.misfire_grace_time,
        "coalesce": job.coalesce,
        "max_instances": job.max_instances,
        "policy": _policy_data(job, where),
        "timed": job.timed,
        "next_run_time": None if moment is None else moment.astimezone(UTC).isoformat(),
    }


def _policy_data(job: Job, where: str) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name in sorted(POLICY_FIELDS):
        value = getattr(job.policy, name)
        if value == getattr(DEFAULT_POLICY, name):
            continue
        if isinstance(value, Backoff):
            value = msgspec.structs.asdict(value)
        data[name] = _plain(value, f"{where}: {name}")
    return data


def _from_data(data: dict[str, Any]) -> Job:
    try:
        policy = {name: _restored(value) for name, value in data["policy"].items()}
        if isinstance(policy.get("backoff"), dict):
            policy["backoff"] = Backoff(**policy["backoff"])
        job = Job(
            data["id"],
            Call(data["func"], tuple(_restored(data["args"])), _restored(data["kwargs"]), data["name"]),
            trigger_from_data(data["trigger"]),
            executor=data["executor"],
            queue=data["queue"],
            misfire_grace_time=data["misfire_grace_time"],
            coalesce=data["coalesce"],
            max_instances=data["max_instances"],
            policy=make_policy(DEFAULT_POLICY, **policy),
        )
        moment = data["next_run_time"]
        if data["timed"]:
            job.next_run_time = None if moment is None else datetime.fromisoformat(moment)
    except (LookupError, TypeError, ValueError) as error:
        shown = data.get("id")
        raise ConfigurationError(f"exported job {shown!r} cannot be read: {type(error).__name__}: {error}") from error
    return job


def _plain(value: Any, where: str) -> Any:
    """Turn a value into what JSON has, types kept as `{"$type": ...}`; say where one is that cannot be."""
    if value is None or isinstance(value, (bool, int, float)) or type(value) is str:
        return value
    if isinstance(value, list):
        return [_plain(item, f"{where}[{n}]") for n, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (tuple, set, frozenset)):
        return {f"${type(value).__name__}": [_plain(item, f"{where}[{n}]") for n, item in enumerate(value)]}
    for kind, as_text in _AS_TEXT:
        if isinstance(value, kind):
            return {f"${kind.__name__.lower()}": as_text(value)}
    raise ValueError(f"{where} is {value!r}, which JSON cannot carry; use text, numbers, lists, dicts, dates")


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key, inner), *_ = value.items()
        if key in ("$tuple", "$set", "$frozenset"):
            return {"$tuple": tuple, "$set": set, "$frozenset": frozenset}[key](_restored(inner))
        if key.startswith("$") and key[1:] in _FROM_TEXT:
            return _FROM_TEXT[key[1:]](inner)
    return {key: _restored(item) for key, item in value.items()}
