"""Jobs as text: readable lines for people, JSON for another scheduler."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from mainspring import __version__
from mainspring.codec import Codec, EncodeError, FrameError
from mainspring.core.job import PLAIN_FIELDS, Job
from mainspring.core.policy import DEFAULT_POLICY, policy_from_data, policy_to_data
from mainspring.core.references import obj_to_ref, portable_call
from mainspring.core.run import Call
from mainspring.core.validation import check_field, make_policy
from mainspring.errors import CallableReferenceError, ConfigurationError
from mainspring.triggers import trigger_from_data

__all__ = ["export_jobs", "import_jobs", "print_jobs"]

_FRAME: Final = "$frame"
"""The key that marks a value JSON cannot represent: it holds the value's frame as base64 text."""
_CONTEXT: Final = "exported"


def print_jobs(sections: Iterable[tuple[str, list[Job]]], out: TextIO) -> None:
    """Print jobs under the titles of their stores."""
    for title, jobs in sections:
        print(f"{title}:", file=out)
        for job in jobs:
            print(f"    {job}", file=out)
        if not jobs:
            print(f"    No {'pending' if title == 'Pending jobs' else 'scheduled'} jobs", file=out)


def export_jobs(jobs: list[Job], outfile: Any) -> None:
    """Write jobs as JSON; write nothing if any of them cannot be written."""
    document = {"mainspring": 1, "version": __version__, "jobs": [_to_data(job) for job in jobs]}
    text = json.dumps(document, indent=1)
    with _opened(outfile, "w") as stream:
        stream.write(text + "\n")


def import_jobs(infile: Any) -> list[Job]:
    """Read jobs; raise if any of them is invalid."""
    with _opened(infile, "r") as stream:
        text = stream.read()
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"this is not a file of exported jobs: {error}") from error
    if isinstance(document, dict) and "scheduler_version" in document:
        raise ConfigurationError("this file was exported by APScheduler and holds pickles, which are not opened here")
    if not isinstance(document, dict) or document.get("mainspring") != 1:
        raise ConfigurationError("this is not a file of exported jobs, or a newer mainspring wrote it")
    return [_from_data(data) for data in document.get("jobs", []) if isinstance(data, dict)]


def _opened(file: Any, mode: str) -> Any:
    if isinstance(file, (str, os.PathLike)):
        return open(file, mode, encoding="utf-8")
    return nullcontext(file)


def _to_data(job: Job) -> dict[str, Any]:
    try:
        ref, args = portable_call(job.call.func, job.args)
        policy = policy_to_data(job.policy, obj_to_ref)
        policy = {field: list(value) if isinstance(value, tuple) else value for field, value in policy.items()}
        moment = job.next_run_time
        return {
            "id": job.id,
            "name": job.name,
            "func": ref,
            "args": [_to_json(value, f"args[{n}]") for n, value in enumerate(args)],
            "kwargs": {key: _to_json(value, f"kwargs.{key}") for key, value in job.kwargs.items()},
            "trigger": job.trigger.to_data(),
            **{name: getattr(job, name) for name in PLAIN_FIELDS},
            "policy": {field: _to_json(value, field) for field, value in policy.items()},
            "timed": job.timed,
            "next_run_time": None if moment is None else moment.astimezone(UTC).isoformat(),
        }
    except (CallableReferenceError, LookupError, EncodeError) as error:
        raise ValueError(f"job {job.id!r} cannot be exported: {error}") from error


def _from_data(data: dict[str, Any]) -> Job:
    try:
        policy = policy_from_data({field: _from_json(value) for field, value in data["policy"].items()})
        args = tuple(map(_from_json, data["args"]))
        kwargs = {key: _from_json(value) for key, value in data["kwargs"].items()}
        job = Job(
            data["id"],
            Call(data["func"], args, kwargs, data["name"]),
            trigger_from_data(data["trigger"]),
            **{name: data[name] for name in PLAIN_FIELDS if name != "overlap"},
            overlap=check_field("overlap", data.get("overlap", "skip")),
            policy=make_policy(DEFAULT_POLICY, **{field: getattr(policy, field) for field in data["policy"]}),
        )
        moment = data["next_run_time"]
        if data["timed"]:
            job.next_run_time = None if moment is None else datetime.fromisoformat(moment)
    except (LookupError, TypeError, ValueError, FrameError) as error:
        shown = data.get("id")
        raise ConfigurationError(f"exported job {shown!r} cannot be read: {type(error).__name__}: {error}") from error
    return job


def _to_json(value: Any, where: str) -> Any:
    """Return a value unchanged if JSON can represent it, otherwise as a frame of the codec."""
    try:
        if json.loads(json.dumps(value)) == value and not (isinstance(value, dict) and _FRAME in value):
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return {_FRAME: b64encode(Codec().dumps(value, _CONTEXT)).decode()}
    except EncodeError as error:
        dot = "." if error.path[:1].isidentifier() else ""
        raise EncodeError(f"{where}{dot}{error.path}", error.kind, error.problem) from None


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {_FRAME}:
        return Codec().loads(b64decode(value[_FRAME]), _CONTEXT)
    return value
