"""The shapes of the API's answers and bodies, as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mainspring.core.insight.metrics import EVENTS

__all__ = ["SCHEMAS", "listed", "obj", "ref"]

Schema = dict[str, Any]


def _kind(word: str) -> Schema:
    """Return the schema that a word stands for: `text`, `time?`, `list of text`, or the name of a shape."""
    optional, word = word.endswith("?"), word.removesuffix("?")
    if word == "any":
        return {}
    if word.startswith("list of "):
        found: Schema = {"type": "array", "items": _kind(word.removeprefix("list of "))}
    elif word.startswith("map of "):
        found = {"type": "object", "additionalProperties": _kind(word.removeprefix("map of "))}
    elif word[0].isupper():
        return {"anyOf": [ref(word), {"type": "null"}]} if optional else ref(word)
    else:
        found = dict(_WORDS[word])
    return {**found, "type": [found["type"], "null"]} if optional else found


_WORDS: Final[dict[str, Schema]] = {
    "text": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
}


def ref(name: str) -> Schema:
    """Return a reference to a shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def obj(fields: Mapping[str, str], *, required: bool = True, extends: str = "") -> Schema:
    """Return the shape of an object; `extends` names a shape whose fields it has, too."""
    shape: Schema = {"type": "object", "properties": {name: _kind(word) for name, word in fields.items()}}
    if required:
        shape["required"] = list(fields)
    return {"allOf": [ref(extends), shape]} if extends else shape


def listed(name: str, of: str, **more: str) -> Schema:
    """Return the shape of an object with one list in it."""
    return obj({name: f"list of {of}", **more})


_RUN: Final = {
    **dict.fromkeys(("id", "task", "name", "status", "kind", "queue", "arguments", "says"), "text"),
    **dict.fromkeys(("job_id", "group", "reason", "node", "copied_from"), "text?"),
    **dict.fromkeys(("priority", "attempt", "failures"), "int"),
    **dict.fromkeys(("created_at", "run_at"), "time"),
    **dict.fromkeys(("started_at", "finished_at"), "time?"),
    **dict.fromkeys(("took_seconds", "waited_seconds"), "number?"),
    "progress": "any",
}
_JOB: Final = {
    **dict.fromkeys(("id", "name", "task", "trigger", "when", "health", "health_reason"), "text"),
    **{"args": "list of any", "kwargs": "object", "next_run_time": "time?", "paused": "bool", "queue": "text?"},
    **{"max_instances": "int", "overlap": "text", "coalesce": "bool", "misfire_grace_time": "any", "declared": "bool"},
}
_QUEUE: Final = {
    **dict.fromkeys(("waiting", "delayed", "blocked", "running", "slots"), "int"),
    **{"name": "text", "paused": "bool", "served": "bool", "oldest_seconds": "number?"},
}
_NODE: Final = {
    **dict.fromkeys(("id", "host", "state", "version", "code", "cluster"), "text"),
    **dict.fromkeys(("pid", "slots", "busy", "done", "rss", "stuck"), "int"),
    **dict.fromkeys(("queues", "missing", "runs"), "list of text"),
    **dict.fromkeys(("uptime_seconds", "heard_seconds_ago"), "number"),
}
_TASK: Final = {
    **{"name": "text", "known": "bool", "failure_rate": "number?", "total_seconds": "number"},
    **dict.fromkeys(("runs", "succeeded", "failed", "retried"), "int"),
    **dict.fromkeys(("p50_seconds", "p95_seconds", "p99_seconds"), "number?"),
}
_ERROR: Final = {
    **dict.fromkeys(("key", "type", "place", "message", "traceback"), "text"),
    **{"count": "int", "starts": "int", "first_seen": "time", "last_seen": "time"},
    **{"tasks": "map of int", "runs": "list of text"},
}
_BULK: Final = {
    **dict.fromkeys(("id", "verb", "filter", "state", "problem"), "text"),
    **{"before": "time", "trial": "bool", "looked_at": "int", "changed": "int", "left": "map of int"},
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": obj({"error": "text"}),
    "Run": obj(_RUN),
    "WholeRun": obj(
        {
            **{
                "args": "list of any",
                "kwargs": "object",
                "result": "any",
                "data": "any",
                "errors": "list of RunFailure",
            },
            **{"starts": "list of RunStart", "log": "list of text", "fire_time": "time?", "start_by": "time?"},
        },
        extends="Run",
    ),
    "RunFailure": obj({"type": "text", "message": "text", "traceback": "text", "at": "time", "attempt": "int"}),
    "RunStart": obj(
        {
            **{"number": "int", "node": "text?", "how": "text?"},
            **dict.fromkeys(("claimed_at", "started_at", "ended_at", "run_at"), "time?"),
        }
    ),
    "Runs": listed("runs", "Run", next="text?", looked_through="int", complete="bool"),
    "Count": obj({"number": "int", "exact": "bool"}),
    "Episode": obj(
        {
            **{"kind": "text", "since": "time", "until": "time?", "text": "text", "number": "int?", "node": "text?"},
            "seconds": "number?",
        }
    ),
    "Story": listed("episodes", "Episode"),
    "Job": obj(_JOB),
    "WholeJob": obj({"fires": "list of time", "runs": "list of Run"}, extends="Job"),
    "Jobs": listed("jobs", "Job"),
    "Fire": obj({"job_id": "text", "at": "time", "note": "text?"}),
    "Fires": listed("fires", "Fire"),
    "Queue": obj(_QUEUE),
    "WholeQueue": obj({"explanation": "Explanation"}, extends="Queue"),
    "Queues": listed("queues", "Queue"),
    "Ordered": obj({"nodes": "list of text", "within_seconds": "number"}),
    "QueueState": obj({"name": "text", "paused": "bool"}),
    "Node": obj(_NODE),
    "WholeNode": obj({"explanation": "Explanation"}, extends="Node"),
    "Nodes": listed("nodes", "Node"),
    "Task": obj(_TASK),
    "Tasks": listed("tasks", "Task"),
    "MetricStep": obj(
        {
            "at": "time",
            **dict.fromkeys(EVENTS, "int"),
            **dict.fromkeys(("waited_p95_seconds", "took_p50_seconds", "took_p95_seconds"), "number?"),
        }
    ),
    "MetricLine": obj({"name": "text", "steps": "list of MetricStep"}),
    "Metrics": obj({"since": "time", "step_seconds": "number", "lines": "list of MetricLine"}),
    "Error": obj(_ERROR),
    "Errors": listed("errors", "Error", complete="bool"),
    "WholeError": obj({"error": "Error", "runs": "list of Run"}),
    "Stats": obj(
        {
            **dict.fromkeys(("waiting", "delayed", "blocked", "running", "queues", "nodes", "slots", "busy"), "int"),
            "counters": "map of int",
        }
    ),
    "Fact": obj({"name": "text", "value": "text", "kind": "text?", "id": "text?"}),
    "Explanation": obj(
        {
            **dict.fromkeys(("kind", "id", "state", "sentence", "cause"), "text"),
            **{
                "facts": "list of Fact",
                "actions": "list of text",
                "parts": "list of Explanation",
                "ids": "list of text",
            },
        }
    ),
    "Act": obj(
        {**dict.fromkeys(("id", "by", "verb", "kind", "target", "why"), "text"), "at": "time", "details": "object"}
    ),
    "Audit": listed("acts", "Act"),
    "Mark": obj({"at": "time", "text": "text", "by": "text"}),
    "Marks": listed("marks", "Mark"),
    "MarkText": obj({"text": "text"}),
    "Bulk": obj(_BULK),
    "Deleted": obj({"deleted": "text"}),
    "Purged": obj({"cancelled": "int"}),
    # -- bodies
    "Why": obj({"why": "text"}, required=False),
    "NewRun": {
        **obj(
            {
                **{"task": "text", "args": "list of any", "kwargs": "object", "options": "object", "in": "any"},
                "why": "text",
            },
            required=False,
        ),
        "required": ["task"],
    },
    "AgainBody": obj(
        {"args": "list of any", "kwargs": "object", "options": "object", "in": "any", "why": "text"}, required=False
    ),
    "RetryBody": obj({"in": "any", "why": "text"}, required=False),
    "ChangeBody": obj({"queue": "text", "priority": "int", "in": "any", "why": "text"}, required=False),
    "BulkBody": {
        **obj(
            {
                **{"verb": "text", "filter": "text", "trial": "bool", "queue": "text", "priority": "int", "in": "any"},
                "why": "text",
            },
            required=False,
        ),
        "required": ["verb", "filter"],
    },
    "RemoveBody": obj({"cancel_runs": "bool", "why": "text"}, required=False),
    "PurgeBody": {**obj({"name": "text", "why": "text"}, required=False), "required": ["name"]},
}
"""Every shape by its name."""
