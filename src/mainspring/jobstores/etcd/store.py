"""Keep jobs in etcd (3.4 or newer), and their runs in another store."""

from __future__ import annotations

from typing import Any, Final

from mainspring.codec import Codec
from mainspring.errors import ConfigurationError
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.etcd.client import EtcdClient
from mainspring.jobstores.etcd.records import EtcdRecords
from mainspring.jobstores.opening import DEFAULT_NAME
from mainspring.jobstores.split import RecordsJobStore, resolve
from mainspring.jobstores.split.locations import Location, named_path, parse_url

__all__ = ["EtcdJobStore", "client_arguments"]

PORT: Final = 2379
_OPTIONS: Final = {"ca": "ca_cert", "cert": "cert_cert", "key": "cert_key", "timeout": "timeout"}


class EtcdJobStore(RecordsJobStore):
    """A store of jobs in etcd; `runs` is the store of their runs, or its URL.

    Give a `url` (etcd://user:password@h1:2379,h2:2379/path, or etcds:// for TLS, with ?ca=, cert= and key=), a `client`
    (an EtcdClient, an object with the same `call`, or a reference to one), or the arguments of EtcdClient. The store
    closes a client of your own only with `close_connection_on_exit`. `pickle_protocol` is accepted for APScheduler's
    signature and ignored.
    """

    jobs: EtcdRecords

    def __init__(
        self,
        path: str = "/apscheduler",
        client: Any = None,
        close_connection_on_exit: bool = False,
        pickle_protocol: int | None = None,
        *,
        url: str | None = None,
        runs: JobStore | str | None = None,
        codec: Codec | None = None,
        name: str = DEFAULT_NAME,
        **connect_args: Any,
    ) -> None:
        location = None if url is None else parse_url(url, PORT, ["runs", *_OPTIONS])
        if location is not None:
            connect_args = {**client_arguments(location), **connect_args}
            runs = location.options.get("runs") if runs is None else runs
        path = named_path(path, location, name)
        given = resolve(client) if client else None
        if given is not None and not callable(getattr(given, "call", None)):
            raise ConfigurationError(
                f"client= takes a mainspring.jobstores.etcd.EtcdClient, or an object with call(verb, body, write=), "
                f"not {type(given).__module__}.{type(given).__qualname__}; a client of the package etcd3 cannot be "
                "used: pass its arguments (host, port, ca_cert, user ...) instead"
            )
        made = given if given is not None else EtcdClient(**connect_args)
        records = EtcdRecords(path, made, closes=given is None or close_connection_on_exit)
        super().__init__(records, runs=runs, codec=codec, name=name)
        self.path, self.client, self.close_connection_on_exit = path, made, close_connection_on_exit


def client_arguments(location: Location) -> dict[str, Any]:
    """Return the arguments of an EtcdClient for a URL."""
    scheme = "https" if location.scheme == "etcds" else "http"
    made: dict[str, Any] = {_OPTIONS[name]: value for name, value in location.options.items() if name in _OPTIONS}
    if "timeout" in made:
        made["timeout"] = float(made["timeout"])
    return {
        "endpoints": [f"{scheme}://{host}" for host in location.hosts],
        "user": location.user,
        "password": location.password,
        **made,
    }
