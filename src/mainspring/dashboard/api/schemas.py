"""The shapes of the API's answers and bodies, as JSON Schema."""

from __future__ import annotations

from typing import Any, Final

from mainspring.core.insight.metrics import EVENTS

__all__ = ["SCHEMAS", "ref"]

Schema = dict[str, Any]


def _kind(word: str) -> Schema:
    """Return the schema for a word: `text`, `time?`, `list of text`, or the name of a shape."""
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


def _object(*fields: str, extends: str = "") -> Schema:
    """Return the shape of an object from lines such as `id name: text`; `extends` names a shape to inherit."""
    shape = _body(*fields)
    shape["required"] = list(shape["properties"])
    return {"allOf": [ref(extends), shape]} if extends else shape


def _body(*fields: str, needs: str = "") -> Schema:
    """Return the shape of a body; only the fields in `needs` are required."""
    pairs = [(name, kind) for names, _, kind in (line.partition(": ") for line in fields) for name in names.split()]
    shape: Schema = {"type": "object", "properties": {name: _kind(kind) for name, kind in pairs}}
    return {**shape, "required": needs.split()} if needs else shape


SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": _object("error: text"),
    "Run": _object(
        "id task name status kind queue arguments says: text",
        "job_id group reason node copied_from: text?",
        "priority attempt failures: int",
        "created_at run_at: time",
        "started_at finished_at: time?",
        "took_seconds waited_seconds: number?",
        "progress: any",
    ),
    "WholeRun": _object(
        "args: list of any",
        "kwargs: object",
        "result data: any",
        "errors: list of RunFailure",
        "starts: list of RunStart",
        "log: list of text",
        "fire_time start_by: time?",
        extends="Run",
    ),
    "RunFailure": _object("type message traceback: text", "at: time", "attempt: int"),
    "RunStart": _object("number: int", "node how: text?", "claimed_at started_at ended_at run_at: time?"),
    "Runs": _object("runs: list of Run", "next: text?", "looked_through: int", "complete: bool"),
    "Count": _object("number: int", "exact: bool"),
    "Episode": _object(
        "kind: text", "since: time", "until: time?", "text: text", "number: int?", "node: text?", "seconds: number?"
    ),
    "Story": _object("episodes: list of Episode"),
    "Job": _object(
        "id name task trigger when health health_reason: text",
        "args: list of any",
        "kwargs: object",
        "next_run_time: time?",
        "paused: bool",
        "queue: text?",
        "max_instances: int",
        "overlap: text",
        "coalesce: bool",
        "misfire_grace_time: any",
        "declared: bool",
    ),
    "WholeJob": _object("fires: list of time", "runs: list of Run", extends="Job"),
    "Jobs": _object("jobs: list of Job"),
    "Fire": _object("job_id: text", "at: time", "note: text?"),
    "Fires": _object("fires: list of Fire"),
    "Queue": _object(
        "waiting delayed blocked running slots: int", "name: text", "paused served: bool", "oldest_seconds: number?"
    ),
    "WholeQueue": _object("explanation: Explanation", extends="Queue"),
    "Queues": _object("queues: list of Queue"),
    "Ordered": _object("nodes: list of text", "within_seconds: number"),
    "QueueState": _object("name: text", "paused: bool"),
    "Node": _object(
        "id host state version code cluster: text",
        "pid slots busy done rss stuck: int",
        "queues missing runs: list of text",
        "uptime_seconds heard_seconds_ago: number",
    ),
    "WholeNode": _object("explanation: Explanation", extends="Node"),
    "Nodes": _object("nodes: list of Node"),
    "Task": _object(
        "name: text",
        "known: bool",
        "failure_rate: number?",
        "total_seconds: number",
        "runs succeeded failed retried: int",
        "p50_seconds p95_seconds p99_seconds: number?",
    ),
    "Tasks": _object("tasks: list of Task"),
    "MetricStep": _object(
        "at: time", f"{' '.join(EVENTS)}: int", "waited_p95_seconds took_p50_seconds took_p95_seconds: number?"
    ),
    "MetricLine": _object("name: text", "steps: list of MetricStep"),
    "Metrics": _object("since: time", "step_seconds: number", "lines: list of MetricLine"),
    "Error": _object(
        "key type place message traceback: text",
        "count starts: int",
        "first_seen last_seen: time",
        "tasks: map of int",
        "runs: list of text",
    ),
    "Errors": _object("errors: list of Error", "complete: bool"),
    "WholeError": _object("error: Error", "runs: list of Run"),
    "Stats": _object("waiting delayed blocked running queues nodes slots busy: int", "counters: map of int"),
    "Fact": _object("name value: text", "kind id: text?"),
    "Explanation": _object(
        "kind id state sentence cause: text",
        "facts: list of Fact",
        "actions: list of text",
        "parts: list of Explanation",
        "ids: list of text",
    ),
    "Act": _object("id by verb kind target why: text", "at: time", "details: object"),
    "Audit": _object("acts: list of Act"),
    "Mark": _object("at: time", "text by: text"),
    "Marks": _object("marks: list of Mark"),
    "MarkText": _object("text: text"),
    "Bulk": _object(
        "id verb filter state problem: text",
        "before: time",
        "trial: bool",
        "looked_at changed: int",
        "left: map of int",
    ),
    "Deleted": _object("deleted: text"),
    "Purged": _object("cancelled: int"),
    "Why": _body("why: text"),
    "NewRun": _body("task: text", "args: list of any", "kwargs options: object", "in: any", "why: text", needs="task"),
    "AgainBody": _body("args: list of any", "kwargs options: object", "in: any", "why: text"),
    "RetryBody": _body("in: any", "why: text"),
    "ChangeBody": _body("queue: text", "priority: int", "in: any", "why: text"),
    "BulkBody": _body(
        "verb filter: text",
        "trial: bool",
        "queue: text",
        "priority: int",
        "in: any",
        "why: text",
        needs="verb filter",
    ),
    "RemoveBody": _body("cancel_runs: bool", "why: text"),
    "PurgeBody": _body("name why: text", needs="name"),
}
"""Every shape, by name."""
