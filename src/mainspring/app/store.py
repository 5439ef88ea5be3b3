"""The state that the parts of an app share: store, codec, clock, time zone, and the node's link while the app runs."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

from mainspring.app.insight.acting import Acting
from mainspring.app.loading.import_guard import import_purpose
from mainspring.app.runs import ALIAS
from mainspring.clock import Clock, StoreTime
from mainspring.codec import Codec, Keyring, TypeBook
from mainspring.codec.key_sources import absent_key_file, find_keyring
from mainspring.core.run import Run
from mainspring.core.waiting.followups import FinishedRun
from mainspring.errors import ConfigurationError, RunCancelled, RunFailed
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.counting import hand_over
from mainspring.jobstores.opening import check_url, open_for_app
from mainspring.locks import free_in_children
from mainspring.node.events.run_events import RunEvents
from mainspring.util import astimezone

if TYPE_CHECKING:
    from mainspring.app.inline import InlineRunner
    from mainspring.jobstores.sqlalchemy.joining.outbox import RunOutbox
    from mainspring.node.store_link import StoreLink

__all__ = ["AppStore"]

URL_VARIABLE: Final = "MAINSPRING_URL"
DEFAULT_URL: Final = "sqlite:///mainspring.db"
TRUSTED_SECONDS: Final = 60.0
"""Use this process's estimate of the store's clock for this long before asking again."""
HAND_OVER_SECONDS: Final = 5.0
"""Hand over the counters of a process that only enqueues this often, while it enqueues."""

_apps: WeakKeyDictionary[JobStore, str] = WeakKeyDictionary()
"""The name of the app that owns each store object given to an app."""


def _dump_error(error: Exception) -> list[Any]:
    return list(error.args)


def _load_error(kind: Callable[..., Exception], args: list[Any]) -> Exception:
    return kind(*args)


class Transactions(Protocol):
    """The transactions of a caller that do not include the store."""

    def is_open(self) -> bool:
        """Return True if the caller's transaction is open, so that runs stored now have to wait for its commit."""

    def covers_runs(self) -> bool:
        """Return True if runs stored now go to an outbox, as part of the caller's open transaction."""

    def defer(self, work: Callable[[], object], rows: Sequence[Any] = ()) -> bool:
        """Call a function when the caller's transaction commits; return False if none is open.

        With an outbox, write these packed runs to it, so that they outlive this process.
        """


class AppStore:
    """An app's store, opened when it is first needed, with its codec and clock."""

    def __init__(
        self,
        url: str | JobStore | None,
        name: str,
        keys: str | bytes | Sequence[str | bytes] | None,
        allow_pickle: bool,
        options: Mapping[str, Any] | None,
        timezone: tzinfo | str | None,
        clock: Clock,
        events: RunEvents,
        make_companion: Callable[[], InlineRunner],
        outbox: RunOutbox | None = None,
    ) -> None:
        self.url = check_url(url if url is not None else os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        self.name, self.clock, self.events = name, clock, events
        self.keys, self.allow_pickle = keys, allow_pickle
        self.outbox = outbox
        """The outbox in which runs wait for the commit of a transaction that does not include the store."""
        self.transactions: Transactions | None = None
        """The caller's transactions, if they may not include the store."""
        self.inline = False
        """Whether calls are executed in the process that enqueues them, on the companion's store."""
        self.opened: JobStore | None = None
        self.before_closing: list[Callable[[], object]] = []
        """Functions to call before the store closes, to stop background readers that would open it again."""
        self.opened_by_import = False
        """Whether the store was opened while a worker or child process only imported the app's module."""
        self.link: StoreLink | None = None
        """The node's link to the store while the app is started in this process."""
        self.lock = free_in_children(threading.RLock())
        self.types = TypeBook([FinishedRun], imports=False)
        for error in (RunFailed, RunCancelled):  # items of a list that was gathered with return_exceptions=True
            self.types.register(error, _dump_error, partial(_load_error, error))
        self._options = dict(options or {})
        self._zone = astimezone(timezone)
        self._codec: Codec | None = None
        self._time = StoreTime(lambda: self.lasting.beat(), clock, TRUSTED_SECONDS)
        self.acts = Acting(lambda: self.store, lambda: self.now(), lambda: self.timezone)
        self._hands_over_at = clock.monotonic() + HAND_OVER_SECONDS
        self._make_companion = make_companion
        self._companion: InlineRunner | None = None

    def reconfigure(
        self,
        url: str | JobStore,
        name: str,
        keys: str | bytes | Sequence[str | bytes] | None,
        allow_pickle: bool,
        options: Mapping[str, Any],
        timezone: tzinfo | str | None,
    ) -> None:
        """Change the settings; the next use opens the store again."""
        with self.lock:
            opened, self.opened = self.opened, None
            self.url, self.name, self.keys, self.allow_pickle = url, name, keys, allow_pickle
            self._options, self._zone, self._codec = dict(options), astimezone(timezone), None
            self._companion = None
            self._time = StoreTime(lambda: self.lasting.beat(), self.clock, TRUSTED_SECONDS)
        if opened is not None:
            opened.shutdown()

    @property
    def codec(self) -> Codec:
        """Turns arguments and results into signed bytes."""
        if self._codec is None:
            with self.lock:
                if self._codec is None:
                    url = self.url if isinstance(self.url, str) else "memory:" if self.url.volatile else None
                    keyring = find_keyring(self.keys, url)
                    self._codec = Codec(keyring, name=self.name, allow_pickle=self.allow_pickle, types=self.types)
        return self._codec

    @property
    def absent_key(self) -> Path | None:
        """The path of the SQLite database's key file if that is missing and the app has no other key; else None."""
        return absent_key_file(self.keys, self.url)

    def use_throwaway_key(self) -> None:
        """Use a temporary key, for a process that only reads a database whose key file is gone."""
        with self.lock:
            keyring = Keyring([secrets.token_bytes(32)])
            self._codec = Codec(keyring, name=self.name, allow_pickle=self.allow_pickle, types=self.types)

    @property
    def may_import(self) -> bool:
        """Whether unregistered names may be imported: with a key, or if no other process can write to the store."""
        return self.codec.signed or self.lasting.volatile

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown; by default the machine's."""
        if self._zone is None:
            from tzlocal import get_localzone

            self._zone = get_localzone()
        return self._zone

    # -- the store ---------------------------------------------------------------------------------------------

    @property
    def store(self) -> JobStore:
        """The store that all verbs act on; in inline mode, the store in memory whose runs are executed at once."""
        return self.companion.store if self.inline else self.lasting

    @property
    def lasting(self) -> JobStore:
        """The store at the app's URL; inline mode does not touch it."""
        return self.opened or self.open()

    def open(self) -> JobStore:
        """Return the store at the app's URL; open it first if necessary."""
        if self.opened is None:
            with self.lock:
                if self.opened is None:
                    self.opened_by_import = import_purpose() is not None
                    self.opened = self._make_store()
        return self.opened

    def _make_store(self) -> JobStore:
        if isinstance(self.url, JobStore):
            store = self.url
            first = _apps.setdefault(store, self.name)
            if first != self.name:
                raise ConfigurationError(
                    f"the store {store!r} already belongs to the app {first!r}, and the app {self.name!r} would "
                    "share everything with it; give each app a store of its own, or the same name"
                )
        else:
            store = open_for_app(self.url, self.name, **{"codec": self.codec, **self._options})
        store.use_clock(self.clock)
        store.on_set_aside = partial(self.events.set_aside, ALIAS)
        return store

    @property
    def companion(self) -> InlineRunner:
        """The runner that executes calls inline, made when it is first needed."""
        if self._companion is None:
            self._companion = self._make_companion()
        return self._companion

    def work_inline(self, run_ids: Sequence[str] = ()) -> None:
        """In inline mode, execute the waiting runs, and wait until these runs have ended."""
        if self.inline:
            self.companion.work(run_ids)

    def forget_functions(self) -> None:
        """Make the inline runner forget resolved names, because tasks or middleware have changed."""
        if self._companion is not None:
            self._companion.forget()

    # -- time, and this process's own node ---------------------------------------------------------------------

    def now(self) -> int:
        """Return the store's time as this process estimates it."""
        if self.inline:
            return self.store.beat()
        link = self.link
        return self._time.now() if link is None else link.now()

    @property
    def slack(self) -> int:
        """How far the store's time may be ahead of the last `now`: the time that the store took to answer."""
        link = self.link
        return self._time.slack if link is None else link.slack

    def count_added(self, runs: Sequence[Run]) -> None:
        """Count runs that were enqueued here; without a node, hand over the sums every few seconds."""
        if runs:
            self.events.sums(ALIAS).added(runs, runs[0].created_at)
            if self.link is None and self.clock.monotonic() >= self._hands_over_at:
                self._hands_over_at = self.clock.monotonic() + HAND_OVER_SECONDS
                # All nodes add to the same rows, and a long transaction of the caller must not keep them locked.
                self.lasting.after_commit(self.hand_over_sums)

    def hand_over_sums(self) -> None:
        """Add the counters of this process to those of the store."""
        self._hands_over_at = self.clock.monotonic() + HAND_OVER_SECONDS
        if self.opened is not None:
            hand_over(self.events.sums(ALIAS), self.opened)

    def wake_worker(self, runs: Sequence[Run]) -> None:
        """Wake the worker of this process for runs enqueued here; the store wakes the other nodes."""
        link = self.link
        if link is not None:
            link.worker.look_now({run.queue for run in runs})

    def wake_scheduler(self, at: int | None) -> None:
        """Wake the scheduler of this process in time for a job that is due at `at`."""
        link = self.link
        if link is not None:
            link.node.wake_for(ALIAS, at)

    def stop_run(self, run_id: str) -> None:
        """Stop a cancelled run at once if this process executes it; other nodes learn of it by their heartbeat."""
        link = self.link
        run = None if link is None else link.claims.get(run_id)
        if link is not None and run is not None:
            link.stop_run(run)
