"""Placeholders: arguments that stand for the results of runs that have not ended yet. Pure.

A worker replaces them with the results just before it calls the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from mainspring.core.run import FINAL, HOLDS, ON, After, Call, Run, Status
from mainspring.core.stored.edges import merged
from mainspring.core.waiting.results import outcome_of, result_of
from mainspring.errors import MissingInput

__all__ = [
    "OUTCOME",
    "RESULT",
    "RUN",
    "Placeholder",
    "fill",
    "merge_after",
    "needed_runs",
    "placeholders_in",
    "put_previous",
    "with_inputs",
]

RESULT: Final = "result"
"""The kind of a placeholder that stands for the result of its run."""
OUTCOME: Final = "outcome"
"""The kind of a placeholder that stands for the result of its run, or for the error that ended it."""
RUN: Final = "run"
"""The kind of a placeholder that stands for the finished run itself, as a hook gets it."""

_ENDS: Final = {RESULT: ON["success"], OUTCOME: ON["end"], RUN: ON["end"]}
"""The ends of the run that provide a value for a placeholder of each kind, as the mask of an edge."""
_GROUPS: Final = (list, tuple, dict)
MOST_LEVELS: Final = 16
"""Look for placeholders inside at most this many nested lists, tuples and dicts."""


class Placeholder:
    """An argument that stands for the result of a run. Code can only pass it on."""

    __slots__ = ("id", "kind")

    made = False
    """Whether this process has ever made one. Until then, no call is searched for placeholders."""

    def __init__(self, run_id: str, kind: str = RESULT) -> None:
        if kind not in _ENDS:
            raise ValueError(f"there is no kind {kind!r} of placeholder")
        self.id, self.kind = run_id, kind
        Placeholder.made = True

    def __repr__(self) -> str:
        if not self.id:
            return "<result of the call before>"
        _, part, number = self.id.rpartition("~")  # in a flow the number is enough, and keeps the log line readable
        return f"<run {part}{number}>" if self.kind == RUN else f"<{self.kind} of run {part}{number}>"

    def __eq__(self, other: object) -> bool:
        return (self.id, self.kind) == (other.id, other.kind) if isinstance(other, Placeholder) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.id, self.kind))

    def __reduce__(self) -> tuple[Any, ...]:
        return Placeholder, (self.id, self.kind)

    # Refuse these operations here: a type checker takes a placeholder for the result and accepts them all.

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} is not known yet: pass it on as an argument, alone or inside a list, tuple or dict, or wait for "
            "the value with .result()"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()


for _name in (
    *("bool", "len", "iter", "contains", "getitem", "call", "format", "int", "float", "index"),
    *("lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "mod", "rmod"),
):
    setattr(Placeholder, f"__{_name}__", Placeholder._refuse)


def placeholders_in(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Placeholder]:
    """Return the placeholders in the arguments of a call."""
    if not Placeholder.made:
        return []
    return [*_found(args, MOST_LEVELS), *_found(kwargs.values(), MOST_LEVELS)]


def _found(values: Iterable[Any], levels: int) -> Iterator[Placeholder]:
    kinds = set(map(type, values))
    if not (Placeholder in kinds or (levels and not kinds.isdisjoint(_GROUPS))):
        return
    for value in values:
        kind = type(value)
        if kind is Placeholder:
            yield value
        elif levels and kind in _GROUPS:
            yield from _found(value.values() if kind is dict else value, levels - 1)


def _changed(value: Any, change: Callable[[Placeholder], Any], levels: int = MOST_LEVELS + 1) -> Any:
    """Return a value with each placeholder in it replaced."""
    kind = type(value)
    if kind is Placeholder:
        return change(value)
    if not levels or kind not in _GROUPS:
        return value
    if kind is dict:
        return {key: _changed(each, change, levels - 1) for key, each in value.items()}
    return kind(_changed(each, change, levels - 1) for each in value)


def with_inputs(run: Run) -> Run:
    """Return a run that also comes after the runs whose results its arguments need; block it if it has to wait.

    If it comes after one run for several reasons, the end of that run has to satisfy all of them.
    """
    found = placeholders_in(run.args, run.kwargs)
    if not (found or run.after):
        return run
    if any(not each.id for each in found):
        raise ValueError(f"`previous` belongs in a later call of a chain; {run.name!r} comes after no other call")
    after = merge_after((*run.after, *(After(each.id, _ENDS[each.kind]) for each in found)))
    call = replace(run.call, inputs=len(found)) if found else run.call
    return replace(run, call=call, after=after, status=Status.BLOCKED)


def merge_after(given: Iterable[After]) -> tuple[After, ...]:
    """Return each predecessor once, with the final statuses that all its mentions allow."""
    masks = merged(given)
    for run_id, mask in masks.items():
        if not mask & ~HOLDS:
            raise ValueError(
                f"a call cannot come after a failure of run {run_id!r} and also after its success, or take its result"
            )
    return tuple(After(run_id, mask) for run_id, mask in masks.items())


def put_previous(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], run_id: str
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments of a call in a chain, with `previous` standing for the result of the run with this id."""

    def change(each: Placeholder) -> Placeholder:
        return each if each.id else Placeholder(run_id, each.kind)

    if all(each.id for each in placeholders_in(args, kwargs)):
        return args, kwargs
    return _changed(args, change), _changed(dict(kwargs), change)


def needed_runs(run: Run) -> list[str]:
    """Return the ids of the runs whose results a run needs, each once."""
    return list(dict.fromkeys(each.id for each in placeholders_in(run.args, run.kwargs)))


def fill(call: Call, runs: Mapping[str, Run | None], finished: Callable[[Run], Any]) -> Call:
    """Return a call with values in place of its placeholders; its `unfilled` is the original call.

    `finished` makes the value of a placeholder that stands for a run. Raise MissingInput or UnverifiedOutcome if a
    value cannot be had.
    """

    def value(each: Placeholder) -> Any:
        run = runs.get(each.id)
        if run is None or run.status not in FINAL:
            raise MissingInput(each.id, None if run is None else run.status.value)
        if each.kind == RUN:
            return finished(run)
        if each.kind == RESULT and run.status is not Status.SUCCEEDED:
            raise MissingInput(each.id, run.status.value)
        return result_of(run) if each.kind == RESULT else outcome_of(run)

    return replace(call, args=_changed(call.args, value), kwargs=_changed(dict(call.kwargs), value), unfilled=call)
