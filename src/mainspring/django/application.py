"""The project's app: a `Mainspring` over the project's settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from asgiref.sync import sync_to_async
from django.core.signals import setting_changed
from django.db import close_old_connections

from mainspring.app import Mainspring
from mainspring.django.conf import NAMES, Conf, conf, signing_keys
from mainspring.django.references import add_types, with_instances
from mainspring.django.reporting import report_errors
from mainspring.django.store.handing_over import HandingOver

__all__ = ["DjangoApp", "app"]


class DjangoApp(Mainspring):
    """An app configured by the project's settings; it also follows changes to them in tests."""

    def __init__(self, found: Conf | None = None) -> None:
        self.conf = found = found or conf()
        super().__init__(
            found.url,
            name=found.name,
            secret_key=signing_keys(found),
            timezone=found.timezone,
            allow_pickle=found.allow_pickle,
            inline=found.inline,
            queues=(found.default_queue, *found.queues),
            lease=found.lease,
            require=found.require,
            store_options=_store_options(found),
        )
        self.task_defaults = found.options
        # The request's thread holds the connection, and therefore the transaction.
        self.call_off_loop_by(_in_the_threads_of_django)
        self._app_store.transactions = self._handing_over = HandingOver(self)
        self._app_store.outbox = self._handing_over.outbox
        self.middleware(_with_fresh_connections)
        self.middleware(report_errors(lambda: self.conf))
        add_types(self._app_store.types)

    def wrapped(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function in the middleware, and in code that replaces model references by instances."""
        return super().wrapped(with_instances(func))

    def follow_settings(self) -> None:
        """Apply settings that have changed, as with `override_settings` in tests."""
        self.conf = found = conf()
        self._app_store.reconfigure(
            found.url, found.name, signing_keys(found), found.allow_pickle, _store_options(found), found.timezone
        )
        self.url, self.name, self.inline = found.url, found.name, found.inline
        self.task_defaults = found.options
        self._handing_over.read_settings()
        self._app_store.outbox = self._handing_over.outbox

    def using(self, alias: str) -> AbstractContextManager[None]:
        """Hold back the calls enqueued in a `with` block until the transaction of another database commits.

        After a rollback, nothing is enqueued. Outside a transaction of that database, the block has no effect.
        """
        return self._handing_over.using(alias)


def _store_options(found: Conf) -> dict[str, Any]:
    return {"keep_runs": found.keep_runs}


async def _in_the_threads_of_django(work: Callable[[], Any]) -> Any:
    return await sync_to_async(work, thread_sensitive=True)()


def _with_fresh_connections(run: Any, call_next: Callable[[], Any]) -> Any:
    """Replace obsolete or failed connections before and after each run, as Django does around a request."""
    _close_old()
    try:
        return call_next()
    finally:
        _close_old()


def _close_old() -> None:
    # A run in the caller's thread must not close the caller's connection.
    if app._app_store.link is not None:
        close_old_connections()


app = DjangoApp()
"""The app of the project."""


def _settings_changed(*, setting: str, **_: Any) -> None:
    if setting in NAMES:
        app.follow_settings()


setting_changed.connect(_settings_changed, dispatch_uid="mainspring.django.application")
