"""What an app stands on: its store, its codec and its time zone, each found when it is first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

from mainspring.app.keys import find_keyring
from mainspring.codec import Codec
from mainspring.core.followups import Finished
from mainspring.jobstores.base import JobStore
from mainspring.util import astimezone

__all__ = ["StoreOfApp"]

URL_VARIABLE: Final = "MAINSPRING_URL"
DEFAULT_URL: Final = "sqlite:///mainspring.db"


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
        self._codec: Codec | None = None

    @property
    def codec(self) -> Codec:
        """What turns arguments and results into signed bytes."""
        if self._codec is None:
            with self._lock:
                if self._codec is None:
                    url = self.url if isinstance(self.url, str) else "memory:" if self.url.volatile else None
                    keyring = find_keyring(self._given_keys, url)
                    self._codec = Codec(keyring, allow_pickle=self._allow_pickle, types=[Finished])
        return self._codec

    @property
    def may_import(self) -> bool:
        """Whether names that are not registered may be imported: with a key, or if nobody else can write the store."""
        return self.codec.signed or self.store.volatile

    @property
    def store(self) -> JobStore:
        """The store, made when it is first needed."""
        store = self._opened
        if store is None:
            with self._lock:
                store = self._opened
                if store is None:
                    store = self._opened = self._make_store()
        return store

    def _make_store(self) -> JobStore:
        if isinstance(self.url, JobStore):
            return self.url
        from mainspring.jobstores.opening import open_store

        scheme = self.url.partition(":")[0].partition("+")[0]
        if scheme == "memory":
            return open_store(self.url)
        options: dict[str, Any] = {"codec": self.codec, **self._store_options}
        if scheme in ("redis", "rediss", "unix"):
            options.setdefault("name", self.name)
        elif self.name != "mainspring" and scheme in ("sqlite", "postgresql", "postgres", "mysql", "mariadb"):
            options.setdefault("tablename", f"{self.name}_jobs")
        return open_store(self.url, **options)

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown: given, else the machine's."""
        if self._zone is None:
            from tzlocal import get_localzone

            self._zone = get_localzone()
        return self._zone
