"""Actions on all runs that match a filter: retry, cancel, delete, move, postpone. They outlive their process."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.app.insight.bulk_work import BulkClaims, LostBulk, bulk_run, change_all, place_of
from mainspring.app.waiting.hub import on_a_thread
from mainspring.core.instants import from_us
from mainspring.core.quantities import check_timeout
from mainspring.core.run import BULK_QUEUE, FINAL, UNFINISHED, WAITING, Run, Status
from mainspring.core.showing.searching import filter_for
from mainspring.errors import RunNotFound, StoreUnavailable, near
from mainspring.jobstores.finding import instant_of
from mainspring.locks import free_in_children

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring
    from mainspring.app.runs import Runs

__all__ = ["VERBS", "Bulk", "BulkActions", "BulkVerb"]

KEPT_BULKS: Final = 50
"""Remember this many bulk actions that this process does not carry out, or no longer."""
ADOPT_SECONDS: Final = 10.0
"""Look this often, on a node, for actions whose process has ended."""

log = logging.getLogger("mainspring.app")


class BulkVerb(NamedTuple):
    """A verb for many runs: the statuses it applies to, its past tense, and the options it needs."""

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

    def __init__(self, verb: str, text: str, before: datetime, trial: bool, bulk_id: str = "") -> None:
        self.id = bulk_id or secrets.token_hex(8)
        self.verb, self.filter, self.before, self.trial = verb, text, before, trial
        self.state = "running"
        self.looked_at = 0
        self.changed = 0
        self.left: Counter[str] = Counter()
        """The number of runs that were left unchanged, by reason."""
        self.problem = ""
        """The error that ended the action early, or an empty text."""
        self.stopping = False
        """Whether somebody has asked the action to stop."""
        self.runs: Runs | None = None
        """The runs among which the action's own run is; None for a trial, which has no run."""
        self._idle = threading.Event()
        """Set unless this process carries it out."""
        self._idle.set()

    @property
    def running(self) -> bool:
        """Whether the action has not ended."""
        return self.state == "running"

    @property
    def here(self) -> bool:
        """Whether this process carries it out."""
        return not self._idle.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; return False if it goes on after `timeout` seconds."""
        until, run = time.monotonic() + check_timeout(timeout), None
        if self.runs is not None and self.running:
            try:
                [run] = self.runs.wait_for_records([self.id], timeout)
            except TimeoutError:
                return not self.running
            except RunNotFound:
                pass
        return self._note_end(run, until)

    async def wait_async(self, timeout: float | None = None) -> bool:
        """Wait as `wait` does, without blocking the event loop."""
        until, run = time.monotonic() + check_timeout(timeout), None
        if self.runs is not None and self.running:
            try:
                [run] = [view.record for view in await self.runs.wait_async([self.id], timeout)]
            except TimeoutError:
                return not self.running
            except RunNotFound:
                pass
        return bool(await on_a_thread(lambda: self._note_end(run, until)))

    def _note_end(self, run: Run | None, until: float) -> bool:
        """Note how the action's run ended; if this process carries it out, first wait for that until `until`.

        Return False if the wait took too long.
        """
        if not self._idle.wait(min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)):
            return False
        if self.running:
            self.take(run)
        return True

    def stop(self) -> bool:
        """Stop the action before its next run; return False if it has ended."""
        self.stopping = True
        if self.running and not self.here and self.runs is not None:
            self.runs.cancel(self.id)
        return self.running

    def begin(self) -> None:
        """Note that this process carries out the action."""
        self._idle.clear()

    def leave(self) -> None:
        """Note that this process no longer carries out the action, though it has not ended."""
        self._idle.set()

    def end(self, state: str) -> None:
        """Note that it has ended."""
        self.state = state
        self._idle.set()

    def notes(self) -> dict[str, Any]:
        """Return the progress of the action, for the process that may take it over."""
        return {"looked_at": self.looked_at, "changed": self.changed, "left": dict(self.left)}

    def take(self, run: Run | None) -> None:
        """Copy the state of the action from its run in the store."""
        if run is None:
            self.problem = "its record is gone"
            return self.end("failed")
        noted = run.result if run.status is Status.SUCCEEDED else run.data
        if isinstance(noted, dict):
            self.looked_at, self.changed, self.left = noted["looked_at"], noted["changed"], Counter(noted["left"])
        if run.status is Status.SUCCEEDED:
            self.end(run.result["state"])
        elif run.status in FINAL:
            self.problem = run.errors[-1].message if run.errors else ""
            self.end("stopped" if run.status is Status.CANCELLED else "failed")
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the action as plain data."""
        names = ("id", "verb", "filter", "before", "trial", "state", "looked_at", "changed", "problem")
        return {**{name: getattr(self, name) for name in names}, "left": dict(self.left)}

    def __repr__(self) -> str:
        would = " would be" if self.trial else ""
        left = f", {self.left.total():,} left" if self.left else ""
        return f"<Bulk {self.id} {self.verb} {self.state}: {self.changed:,}{would} changed{left}>"


class BulkActions:
    """The bulk actions of an app. This process carries out those that it began, and those that dead processes left."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._claims = BulkClaims(app)
        self._lock = free_in_children(threading.Lock())
        self._bulks: OrderedDict[str, Bulk] = OrderedDict()
        """The actions that this process began or carries out."""
        self._looks_at = 0.0

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

        The action goes on in a thread: `bulk.wait()` waits for its end, `bulk.stop()` stops it between two runs. If the
        process ends, a node continues the action. It leaves alone runs made after `before` (by default: now). With
        `trial`, it only counts the runs that it would change. Options are those of the verb: `at`, `queue`, `priority`.
        Raise FilterError.
        """
        act = self._act(verb, options)
        filter_for(self._app.runs, filter)  # raise FilterError now
        now = self._app.now()
        boundary = now if before is None else min(now, instant_of(before, self._app.now, lambda: self._app.timezone))
        bulk = Bulk(verb, filter, self._local(boundary), trial)
        if trial:
            bulk.begin()
            self._remember(bulk)
            self._begin(lambda: self._try(bulk, boundary, now, act))
            return bulk
        by, why = self._app.acts.actor()
        run = bulk_run(bulk, boundary, dict(options), by, why, now)
        bulk.runs = self._app.runs
        self._remember(bulk)
        self._app.store.add_runs([self._app.store.pack_run(run)])
        self._begin(self._work)
        return bulk

    def bulk(self, bulk_id: str) -> Bulk | None:
        """Return an action on many runs that any process has begun; None if it is no longer known."""
        with self._lock:
            here = self._bulks.get(bulk_id)
        if here is not None and (here.here or not here.running):
            return here
        run = self._read(bulk_id)
        if run is None or run.queue != BULK_QUEUE:
            return None
        found = self._of(run)
        found.take(run)
        return found

    def stop_bulk(self, bulk_id: str) -> bool:
        """Stop an action between two of its runs; return False if it has ended or is unknown."""
        found = self.bulk(bulk_id)
        return found is not None and found.stop()

    def adopt(self) -> None:
        """Continue actions whose process has ended; a node calls this now and then."""
        if time.monotonic() >= self._looks_at:
            self._looks_at = time.monotonic() + ADOPT_SECONDS
            if self._claims.waits():
                self._begin(self._work)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _begin(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="mainspring-bulk", daemon=True).start()

    def _local(self, us: int) -> datetime:
        return from_us(us, self._app.timezone)

    def _read(self, bulk_id: str) -> Run | None:
        return self._app.store.get_runs([bulk_id])[0]

    def _remember(self, bulk: Bulk) -> None:
        with self._lock:
            self._bulks[bulk.id] = bulk
            idle = [each.id for each in self._bulks.values() if not each.here]
            for each in idle[: max(0, len(self._bulks) - KEPT_BULKS)]:
                del self._bulks[each]

    def _of(self, run: Run) -> Bulk:
        """Return an action as its run describes it, for a process that does not carry it out."""
        spec = run.call.kwargs
        bulk = Bulk(spec["verb"], spec["filter"], self._local(spec["before"]), False, run.id)
        bulk.runs = self._app.runs
        return bulk

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

    def _try(self, bulk: Bulk, boundary: int, asked_at: int, act: Callable[[str], Any]) -> None:
        """Count the runs that an action would change."""
        try:
            change_all(self._app, bulk, VERBS[bulk.verb].able, boundary, asked_at, act)
            bulk.end("stopped" if bulk.stopping else "done")
        except Exception as error:
            log.exception("the trial of %s on all runs that match %r ended early", bulk.verb, bulk.filter)
            bulk.problem = f"{type(error).__name__}: {error}"
            bulk.end("failed")

    def _work(self) -> None:
        """Carry out the actions that nobody carries out."""
        try:
            while (run := self._claims.claim()) is not None:
                self._carry_out(run)
        except (StoreUnavailable, OSError) as error:
            log.warning("the store is away; an action on many runs goes on when a node finds it: %s", error)

    def _carry_out(self, run: Run) -> None:
        with self._lock:
            bulk = self._bulks.get(run.id)
        if bulk is None:
            bulk = self._of(run)
            bulk.take(run)
            self._remember(bulk)
        bulk.begin()
        spec = run.call.kwargs
        with self._app.acting(spec["by"], spec["why"]):
            try:
                state = self._change(bulk, run)
            except (LostBulk, StoreUnavailable, OSError) as error:
                with self._lock:  # from now on, `bulk` reads the store
                    self._bulks.pop(bulk.id, None)
                bulk.leave()
                if not isinstance(error, LostBulk):
                    raise
                return
            details = {"runs": bulk.changed, "left": dict(bulk.left), "state": state}
            shown = {key: value if isinstance(value, int) else str(value) for key, value in spec["options"].items()}
            self._app.acts.record(f"{bulk.verb}_all", "runs", bulk.filter, **shown, **details)
        bulk.end(state)

    def _change(self, bulk: Bulk, run: Run) -> str:
        """Change the runs and write the end of the action; return its state."""
        spec = run.call.kwargs
        try:
            act, able = self._act(bulk.verb, spec["options"]), VERBS[bulk.verb].able
            note = self._claims.keep(bulk, run)
            change_all(self._app, bulk, able, spec["before"], run.created_at, act, note, place_of(run))
            state = "stopped" if bulk.stopping else "done"
        except (LostBulk, StoreUnavailable, OSError):
            raise
        except Exception as error:  # the user's own listener raised
            log.exception("the action %s on all runs that match %r ended early", bulk.verb, bulk.filter)
            bulk.problem, state = f"{type(error).__name__}: {error}", "failed"
        self._claims.settle(bulk, run, state)
        return state
