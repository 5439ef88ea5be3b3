"""The base of stores that hold only jobs and are opened by name or URL, such as ZooKeeper and etcd."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

from mainspring.codec import Codec
from mainspring.core.references import ref_to_obj
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.opening import DEFAULT_NAME, open_for_app
from mainspring.jobstores.split.records import JobRecords
from mainspring.jobstores.split.store import SplitJobStore

__all__ = ["RecordsJobStore", "resolve"]

log = logging.getLogger("mainspring.jobstores.split")


def resolve(client: Any) -> Any:
    """Return a client that was given as an object or as a reference, `module:name`."""
    return ref_to_obj(client) if isinstance(client, str) else client


class RecordsJobStore(SplitJobStore):
    """Keeps jobs in `records`, and their runs in the store `runs`: an object or a URL.

    Without `runs`, it keeps runs in the scheduler's default store if that is another store, otherwise in memory.
    """

    def __init__(
        self,
        records: JobRecords,
        *,
        runs: JobStore | str | None = None,
        codec: Codec | None = None,
        name: str = DEFAULT_NAME,
    ) -> None:
        self._opens_runs = isinstance(runs, str)
        if isinstance(runs, str):
            runs = open_for_app(runs, name, **({} if codec is None else {"codec": codec}))
        if runs is not None and not isinstance(runs, JobStore):
            raise ConfigurationError(f"runs= takes a store or its URL, not {type(runs).__name__}")
        self._finds_runs = runs is None
        super().__init__(records, runs if runs is not None else MemoryJobStore(), codec=codec)

    def start(self, scheduler: Any, alias: str) -> None:
        """Open the store; find the store of the runs if none was named."""
        if self._finds_runs:
            self._find_runs(scheduler, alias)
        super().start(scheduler, alias)

    def shutdown(self) -> None:
        """Close all open stores, including a store of the runs that was given by URL and used without `start`."""
        super().shutdown()
        if self._opens_runs:
            self.runs.shutdown()

    def _find_runs(self, scheduler: Any, alias: str) -> None:
        default = getattr(scheduler, "_jobstores", {}).get("default")
        if isinstance(default, SplitJobStore):
            default = default.runs
        if isinstance(default, JobStore) and default is not self.runs:
            self._use_runs(default, shared=True)
        if self.volatile:
            log.warning(
                "the runs of the job store %r are known to this process only, because %s keeps jobs alone; name a "
                'store that lasts: runs="sqlite:///runs.db"',
                alias,
                self.jobs.place,
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} (client={getattr(self.jobs, 'client', self.jobs.place)})>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds connections and cannot be pickled; make one in each process")
