"""Keep jobs in ZooKeeper (3.5 or newer), and their runs in another store."""

from __future__ import annotations

from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from mainspring.codec import Codec
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.opening import DEFAULT_NAME
from mainspring.jobstores.split import RecordsJobStore, resolve
from mainspring.jobstores.split.locations import Location, named_path, parse_url
from mainspring.jobstores.zookeeper.records import ZooKeeperRecords

__all__ = ["ZooKeeperJobStore"]

PORT: Final = 2181
_OPTIONS: Final = {"runs", "auth", "tls", "ca", "cert", "key", "timeout"}


class ZooKeeperJobStore(RecordsJobStore):
    """A store of jobs in ZooKeeper; `runs` is the store of their runs, or its URL.

    Give a `url` (zookeeper://h1:2181,h2:2181/path?auth=digest:user:password&tls=1), a `client` of your own or a
    reference to one, or the arguments of kazoo's KazooClient. The store closes a client of your own only with
    `close_connection_on_exit`. `pickle_protocol` is accepted for APScheduler's signature and ignored.
    """

    jobs: ZooKeeperRecords

    def __init__(
        self,
        path: str = "/apscheduler",
        client: KazooClient | str | None = None,
        close_connection_on_exit: bool = False,
        pickle_protocol: int | None = None,
        *,
        url: str | None = None,
        runs: JobStore | str | None = None,
        codec: Codec | None = None,
        name: str = DEFAULT_NAME,
        **connect_args: Any,
    ) -> None:
        location = None if url is None else parse_url(url, PORT, _OPTIONS)
        if location is not None:
            connect_args = {**_arguments(location), **connect_args}
            runs = location.options.get("runs") if runs is None else runs
        path = named_path(path, location, name)
        given = resolve(client) if client else None
        records = ZooKeeperRecords(path, given, connect_args, closes=close_connection_on_exit)
        super().__init__(records, runs=runs, codec=codec, name=name)
        self.path, self.close_connection_on_exit = path, close_connection_on_exit

    @property
    def client(self) -> KazooClient:
        """The client of this process."""
        return self.jobs.client


def _arguments(location: Location) -> dict[str, Any]:
    """Return the arguments of a client for a URL."""
    if location.user is not None:
        raise ConfigurationError("ZooKeeper takes no user in front of the hosts; write ?auth=digest:user:password")
    options = location.options
    made: dict[str, Any] = {"hosts": ",".join(location.hosts)}
    if "timeout" in options:
        made["timeout"] = float(options["timeout"])
    if "auth" in options:
        scheme, _, credential = options["auth"].partition(":")
        # Without this access list, anybody could change the znodes that this store creates.
        made |= {"auth_data": [(scheme, credential)], "default_acl": CREATOR_ALL_ACL}
    if options.get("tls", "0") not in ("0", ""):
        made["use_ssl"] = True
        made |= {f"{name}file": options[name] for name in ("ca", "cert", "key") if name in options}
        made["ca"] = made.pop("cafile", None)
    return made
