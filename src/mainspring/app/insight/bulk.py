"""Acts on all runs that match a filter, in a thread of this process: retry, cancel, delete, move, postpone."""

from __future__ import annotations

import contextvars
import logging
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.core.filters import Filter
from mainspring.core.instants import from_us
from mainspring.core.run import FINAL, UNFINISHED, WAITING, Status
from mainspring.core.run_view import RunView
from mainspring.core.searching import filter_for, matching
from mainspring.errors import RunNotFound, near
from mainspring.jobstores.finding import instant_of

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring

__all__ = ["VERBS", "Bulk", "BulkActions", "BulkVerb"]

KEPT_BULKS: Final = 50
"""Bulk actions that a process remembers after they have ended."""
MOST_SINGLE_ACTS: Final = 1000
"""Record an act for each of the first runs; the audit keeps 10,000 acts, so one action must not push all others out."""

log = logging.getLogger("mainspring.app")


class BulkVerb(NamedTuple):
    """What can be done to many runs: the statuses it applies to, its word in the past, and the options it needs."""

    able: Collection[str]
    done: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


VERBS: Final[Mapping[str, BulkVerb]] = {
    "retry": BulkVerb((Status.FAILED, Status.CANCELLED, Status.BROKEN), "sent back", takes=("at",)),
    "cancel": BulkVerb(UNFINISHED, "cancelled"),
    "delete": BulkVerb(FINAL, "deleted"),
    "move": BulkVerb(WAITING, "moved", needs=("queue",)),
    "postpone": BulkVerb(WAITING, "postponed", needs=("at",)),
    "prioritize": BulkVerb(WAITING, "prioritized", needs=("priority",)),
}


class Bulk:
    """An action on many runs: how far it has come, how many it has changed, and why it left others alone.

    `state` is `running`, `done`, `stopped` or `failed`. For a trial, `changed` is how many would be changed.
    """

    def __init__(self, verb: str, text: str, before: datetime, trial: bool) -> None:
        self.id = secrets.token_hex(8)
        self.verb, self.filter, self.before, self.trial = verb, text, before, trial
        self.state = "running"
        self.looked_at = 0
        self.changed = 0
        self.left: Counter[str] = Counter()
        """How many runs were left as they are, by the reason."""
        self.problem = ""
        """The error that ended it early, if one did."""
        self._stop, self._ended = threading.Event(), threading.Event()

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return not self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; return False if it goes on after `timeout` seconds."""
        return self._ended.wait(timeout)

    def stop(self) -> bool:
        """Stop it before its next run; return False if it has ended."""
        self._stop.set()
        return not self._ended.is_set()

    @property
    def stopping(self) -> bool:
        """Whether somebody has stopped it."""
        return self._stop.is_set()

    def end(self, state: str) -> None:
        """Note that it has ended."""
        self.state = state
        self._ended.set()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        names = ("id", "verb", "filter", "before", "trial", "state", "looked_at", "changed", "problem")
        return {**{name: getattr(self, name) for name in names}, "left": dict(self.left)}

    def __repr__(self) -> str:
        would = " would be" if self.trial else ""
        left = f", {self.left.total():,} left" if self.left else ""
        return f"<Bulk {self.id} {self.verb} {self.state}: {self.changed:,}{would} changed{left}>"


class BulkActions:
    """The bulk actions of an app in this process."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._bulks: OrderedDict[str, Bulk] = OrderedDict()

    def apply(
        self,
        verb: str,
        filter: str,
        /,
        *,
        before: datetime | timedelta | None = None,
        trial: bool = False,
        **options: Any,
    ) -> Bulk:
        """Retry, cancel, delete, move, postpone or prioritize all runs that match a filter; return the action.

        It goes on in a thread: `bulk.wait()` waits for its end, `bulk.stop()` stops it between two runs. Runs made
        after `before` (by default: now) are not touched. With `trial`, nothing is changed and everything is counted.
        Options are those of the verb: `at`, `queue`, `priority`. Raise FilterError.
        """
        act = self._act(verb, options)
        wanted = filter_for(self._app.runs, filter)
        now = self._app.now()
        boundary = now if before is None else min(now, instant_of(before, self._app.now, lambda: self._app.timezone))
        bulk = Bulk(verb, filter, from_us(boundary).astimezone(self._app.timezone), trial)
        with self._lock:
            self._bulks[bulk.id] = bulk
            ended = [each.id for each in self._bulks.values() if not each.running]
            for each in ended[: max(0, len(self._bulks) - KEPT_BULKS)]:
                del self._bulks[each]
        context = contextvars.copy_context()  # who acts, and why
        work = (bulk, wanted, boundary, act, options)
        threading.Thread(
            target=context.run, args=(self._work, *work), name=f"mainspring-bulk-{bulk.id}", daemon=True
        ).start()
        return bulk

    def bulk(self, bulk_id: str) -> Bulk | None:
        """Return an action on many runs that was begun in this process, if it is still known."""
        with self._lock:
            return self._bulks.get(bulk_id)

    def stop_bulk(self, bulk_id: str) -> bool:
        """Stop an action on many runs between two of them; return False if it has ended or is unknown."""
        found = self.bulk(bulk_id)
        return found is not None and found.stop()

    def _act(self, verb: str, options: Mapping[str, Any]) -> Callable[[str], Any]:
        if verb not in VERBS:
            raise ValueError(f"there is no bulk action {verb!r}{near(verb, list(VERBS))}")
        known = VERBS[verb]
        lacking = [name for name in known.needs if name not in options]
        strange = [name for name in options if name not in (*known.needs, *known.takes)]
        if lacking or strange:
            what = f"needs {lacking[0]}=" if lacking else f"takes no {strange[0]}="
            raise TypeError(f"the bulk action {verb!r} {what}")
        method = getattr(self._app, verb)
        return lambda run_id: method(run_id, **options)

    def _work(
        self, bulk: Bulk, wanted: Filter, boundary: int, act: Callable[[str], Any], options: Mapping[str, Any]
    ) -> None:
        try:
            for run in self._found(bulk, wanted, boundary):
                if str(run.status) not in VERBS[bulk.verb].able:
                    bulk.left[f"it is {run.status}"] += 1
                elif bulk.trial:
                    bulk.changed += 1
                else:
                    with self._app.acts.silent(bulk.changed >= MOST_SINGLE_ACTS):
                        self._one(bulk, run, act)
            state = "stopped" if bulk.stopping else "done"
        except Exception as error:  # the store is away, or the user's own listener raised
            log.exception("the action %s on all runs that match %r ended early", bulk.verb, bulk.filter)
            bulk.problem, state = f"{type(error).__name__}: {error}", "failed"
        if not bulk.trial:
            details = {"runs": bulk.changed, "left": dict(bulk.left), "state": state}
            shown = {name: value if isinstance(value, int) else str(value) for name, value in options.items()}
            self._app.acts.record(f"{bulk.verb}_all", "runs", bulk.filter, **shown, **details)
        bulk.end(state)

    def _found(self, bulk: Bulk, wanted: Filter, boundary: int) -> Iterator[RunView]:
        for run in matching(self._app.runs, wanted, boundary):
            if bulk.stopping:
                return
            bulk.looked_at += 1
            yield run

    def _one(self, bulk: Bulk, run: RunView, act: Callable[[str], Any]) -> None:
        try:
            if act(run.id) is False:
                bulk.left["it changed meanwhile"] += 1
            else:
                bulk.changed += 1
        except RunNotFound:
            bulk.left["it is gone"] += 1
        except ValueError:  # it is no longer in a status that allows this
            bulk.left["it changed meanwhile"] += 1
