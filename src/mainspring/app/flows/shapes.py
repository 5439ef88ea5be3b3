"""Chains and gathered calls: the two shapes of flow that have their own verbs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.app.declaring.task import TaskCall
from mainspring.app.enqueuing.enqueue import Calls, check_call
from mainspring.app.flows.storing import FlowWriter
from mainspring.app.handle import RunHandle
from mainspring.core.run import Call, Run
from mainspring.core.waiting.flows import COLLECT_TASK, part_id
from mainspring.core.waiting.placeholders import OUTCOME, RESULT, Placeholder, put_previous, with_inputs
from mainspring.node.new_ids import new_run_id

if TYPE_CHECKING:
    from mainspring.app.store import AppStore

__all__ = ["Shapes", "all_inline", "collect", "join", "refuse_options"]


def collect(items: list[Any]) -> list[Any]:
    """Return the results of gathered calls, which have replaced the placeholders in `items`."""
    return items


def join() -> None:
    """Do nothing: a join only links the runs before it to the runs after it."""


class Shapes:
    """Makes and stores chains and gathered calls."""

    def __init__(self, app_store: AppStore, calls: Calls, writer: FlowWriter) -> None:
        self._app_store, self._calls, self._writer = app_store, calls, writer

    def chain(self, calls: Sequence[TaskCall[Any]], group: str | None) -> list[RunHandle[Any]]:
        """Store calls that run one after another; return their handles."""
        if not calls:
            raise ValueError("a chain needs at least one call")
        inline = all_inline(self._calls, calls)
        first = self._calls.make(calls[0])
        runs = self._steps(first, calls[1:], group or first.group or first.id)
        known = None
        if calls[0].options.id is None or inline or not self._is_known(first.id):
            known = self._writer.write(first.id, runs, inline=inline)
        first_id = known or first.id
        where = self._app_store.companion.runs if inline else self._calls.runs
        ids = [first_id, *(part_id(first_id, number) for number in range(1, len(calls)))]
        return [RunHandle(where, run_id) for run_id in ids]

    def _is_known(self, run_id: str) -> bool:
        return self._app_store.lasting.standings([run_id])[0] is not None

    def _steps(self, first: Run, calls: Iterable[TaskCall[Any]], group: str) -> list[Run]:
        runs = [replace(first, group=group)]
        for number, call in enumerate(calls, 1):
            refuse_options(call, ("id", "unique", "group", "at"), "only the first call of a chain can have {}=, not {}")
            before = runs[-1].id
            made = copy(call).after(before)
            made.args, made.kwargs = put_previous(tuple(call.args), call.kwargs, before)
            runs.append(replace(self._calls.make(made), id=part_id(first.id, number), group=group))
        return runs

    def gather(self, calls: Iterable[TaskCall[Any]], return_exceptions: bool) -> RunHandle[list[Any]]:
        """Store calls as a group, and a run that comes after all of them and returns their results."""
        group, calls, now = new_run_id(), list(calls), self._app_store.now()
        inline = all_inline(self._calls, calls)
        items = [self._item(call, group, number) for number, call in enumerate(calls, 1)]
        kind = OUTCOME if return_exceptions else RESULT
        results = [Placeholder(item.id, kind) for item in items]
        collector = Run(
            id=group,
            call=Call(COLLECT_TASK, (results,), {}, "collect"),
            queue=items[0].queue if items else "default",
            group=group,
            created_at=now,
            run_at=now,
        )
        self._writer.write(group, [*items, with_inputs(collector)], inline=inline)
        return RunHandle(self._app_store.companion.runs if inline else self._calls.runs, group)

    def _item(self, call: TaskCall[Any], group: str, number: int) -> Run:
        refuse_options(
            call, ("id", "unique", "group"), "{}= cannot be given to a gathered call, because gather sets it: {}"
        )
        return replace(self._calls.make(call), id=part_id(group, number), group=group)


def all_inline(calls: Calls, some: Iterable[TaskCall[Any]]) -> bool:
    """Return True if the calls of a flow are all executed inline; raise if only some of them are."""
    kinds = {calls.is_inline(check_call(call)) for call in some}
    if len(kinds) > 1:
        raise ValueError("the calls of a flow are inline all together or not at all: give each inline=True")
    return calls.app_store.inline or True in kinds


def refuse_options(call: TaskCall[Any], names: Iterable[str], text: str) -> None:
    """Raise ValueError if a call has one of these options."""
    for name in names:
        if getattr(check_call(call).options, name) is not None:
            raise ValueError(text.format(name, repr(call)))
