"""What an app stands on: its store, its codec and its time zone, each found when it is first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from mainspring.codec import Codec, TypeBook
from mainspring.codec.key_sources import find_keyring
from mainspring.core.followups import Finished
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import JobStore
from mainspring.util import astimezone

__all__ = ["StoreOfApp"]

AnyType = TypeVar("AnyType", bound=type)

URL_VARIABLE: Final = "MAINSPRING_URL"
DEFAULT_URL: Final = "sqlite:///mainspring.db"

_apps: WeakKeyDictionary[JobStore, str] = WeakKeyDictionary()
"""The names of the apps that were given stores that are made already."""


class StoreOfApp:
    """An app's store, the codec with its keys, and the zone of its times."""

    def __init__(
        self,
        url: str | JobStore | None,
        name: str,
        keys: str | bytes | Sequence[str | bytes] | None,
        allow_pickle: bool,
        options: Mapping[str, Any] | None,
        timezone: tzinfo | str | None,
    ) -> None:
        self.url = url if url is not None else os.environ.get(URL_VARIABLE) or DEFAULT_URL
        self.name = name
        self._given_keys, self._allow_pickle = keys, allow_pickle
        self._store_options = dict(options or {})
        self._zone = astimezone(timezone)
        self._lock = threading.RLock()
        self._opened: JobStore | None = None
        self._types = TypeBook([Finished], imports=False)
        self._codec: Codec | None = None

    @property
    def codec(self) -> Codec:
        """What turns arguments and results into signed bytes."""
        if self._codec is None:
            with self._lock:
                if self._codec is None:
                    url = self.url if isinstance(self.url, str) else "memory:" if self.url.volatile else None
                    keyring = find_keyring(self._given_keys, url)
                    self._codec = Codec(keyring, name=self.name, allow_pickle=self._allow_pickle, types=self._types)
        return self._codec

    def register_type(
        self, cls: AnyType, *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None
    ) -> AnyType:
        """Let values of a type be arguments and results; may be used as a decorator.

        An Enum, dataclass, NamedTuple, attrs class or pydantic model needs this only without a key. Any other type
        needs `dump`, which makes something of a value that can be stored, and `load`, which makes the value again.
        """
        self._types.register(cls, dump, load)
        return cls

    @property
    def may_import(self) -> bool:
        """Whether names that are not registered may be imported: with a key, or if nobody else can write the store."""
        return self.codec.signed or self.lasting_store.volatile

    @property
    def store(self) -> JobStore:
        """The store that all verbs act on."""
        return self.lasting_store

    @property
    def lasting_store(self) -> JobStore:
        """The store at the app's URL, made when it is first needed; inline mode does not touch it."""
        store = self._opened
        if store is None:
            with self._lock:
                store = self._opened
                if store is None:
                    store = self._opened = self._make_store()
        return store

    def _make_store(self) -> JobStore:
        if isinstance(self.url, JobStore):
            first = _apps.setdefault(self.url, self.name)
            if first != self.name:
                raise ConfigurationError(
                    f"the store {self.url!r} belongs to the app {first!r} already, and the app {self.name!r} would "
                    "share everything with it; give each app a store of its own, or the same name"
                )
            return self.url
        from mainspring.jobstores.opening import open_for_app

        return open_for_app(self.url, self.name, **{"codec": self.codec, **self._store_options})

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown: given, else the machine's."""
        if self._zone is None:
            from tzlocal import get_localzone

            self._zone = get_localzone()
        return self._zone
