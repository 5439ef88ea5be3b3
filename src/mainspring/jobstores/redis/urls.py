"""Redis URLs: one server, Redis Sentinels, a Redis Cluster, and the store's own options in them."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode

import redis
import redis.sentinel
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from mainspring.core.showing.redaction import without_password
from mainspring.core.store_urls import schemes_of
from mainspring.errors import ConfigurationError, near
from mainspring.jobstores.redis.servers import (
    CALL_TIMEOUT_SECONDS,
    Address,
    ClusterServers,
    FixedServer,
    SentinelServers,
    Servers,
)

__all__ = ["make_servers", "take_options"]

_OWN: Final = ("name", "shards", "replicas", "keep_runs")
_FORMS: Final = {
    "sentinel": "redis+sentinel://host1:26379,host2:26379/service/0",
    "cluster": "redis+cluster://host1:6379,host2:6379",
}


def take_options(url: str | None, given: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return a URL without the store's own options, and the given options updated by those in the URL."""
    if url is None or "?" not in url:
        return url, given
    base, _, query = url.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    if not any(name in given for name, _ in pairs):
        return url, given
    options = dict(given)
    for name, value in pairs:
        if name in given:
            try:
                options[name] = type(given[name])(value)
            except ValueError:
                raise ConfigurationError(f"{name}={value} in the Redis URL is not a whole number") from None
    rest = urlencode([(name, value) for name, value in pairs if name not in given])
    return base + (f"?{rest}" if rest else ""), options


def make_servers(url: str | None, db: int, options: dict[str, Any]) -> Servers:
    """Return the servers of a URL; connections are made when they are first used."""
    _check_names(url, options)
    settings: dict[str, Any] = {
        "socket_timeout": CALL_TIMEOUT_SECONDS,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),  # a repeat would hide that the first write may have happened
        "protocol": 2,
        **options,
        "decode_responses": False,
    }
    form = None if url is None else re.match(r"(rediss?)\+([^:/]*)://", url)
    if form is not None and url is not None:
        return _several(url[form.end() :], form[1], form[2], db, settings)
    settings.setdefault("socket_connect_timeout", CALL_TIMEOUT_SECONDS)
    if url is None:
        return FixedServer(redis.Redis(db=db, **settings))
    try:
        return FixedServer(redis.Redis.from_url(url, db=db, **settings))
    except ValueError as error:
        # The error may quote a part of the password that was read as the port.
        if url.partition("://")[0] not in schemes_of("redis"):
            raise ConfigurationError(
                f"{without_password(url)!r} is not a Redis URL; write redis://, rediss:// or unix://"
            ) from error
        raise ConfigurationError(
            "the Redis URL cannot be read; write it as redis://user:password@host:6379/0, with the signs / @ : # ? of "
            f"a password percent-encoded, or for several hosts as {' or '.join(_FORMS.values())}"
        ) from None


def _check_names(url: str | None, options: dict[str, Any]) -> None:
    """Refuse an option that neither this store nor the driver knows: the driver complains only when it connects."""
    if "connection_class" in options or "connection_pool" in options:  # the user's own class may take other options
        return
    query = "" if url is None or "@" in url.partition("?")[2] else url.partition("?")[2]  # a ? inside a password
    for name in (*options, *(name for name, _ in parse_qsl(query, keep_blank_values=True))):
        if name not in _driver_options():
            raise ConfigurationError(f"a Redis store has no option {name!r}{near(name, {*_OWN, *_driver_options()})}")


@cache
def _driver_options() -> frozenset[str]:
    kinds = (
        redis.Redis, redis.RedisCluster, redis.sentinel.Sentinel, redis.ConnectionPool, redis.BlockingConnectionPool,
        redis.Connection, redis.SSLConnection, redis.UnixDomainSocketConnection,
    )  # fmt: skip
    classes = {cls for kind in kinds for cls in kind.__mro__[:-1]}
    names = {name for cls in classes for name in inspect.signature(cls).parameters}
    return frozenset({*names, "sentinel_username", "sentinel_password"} - {"args", "kwargs"})


def _several(rest: str, scheme: str, kind: str, db: int, settings: dict[str, Any]) -> Servers:
    if kind not in _FORMS:
        raise ConfigurationError(f"no kind of Redis is called {scheme}+{kind}://{near(kind, _FORMS)}")
    parts = re.fullmatch(r"(?:([^/?@]*)@)?([^/?@]*)(?:/([^?@]*))?(?:\?(.*))?", rest)
    if parts is None:
        raise ConfigurationError(
            f"the Redis URL cannot be read; write it as {_FORMS[kind]}, with user:password@ before the hosts if need "
            "be, the signs / @ : # ? of a password percent-encoded"
        )
    user, hosts, path, query = parts.groups(default="")
    name, _, password = user.partition(":")
    settings |= _connect_args(query)
    settings |= {key: unquote(value) for key, value in (("username", name), ("password", password)) if value}
    settings["decode_responses"] = False
    if scheme == "rediss":
        settings["ssl"] = True
    own = settings.pop("sentinel_kwargs", None) or {}
    own |= {key: settings.pop(f"sentinel_{key}") for key in ("username", "password") if f"sentinel_{key}" in settings}
    words = [unquote(word) for word in path.split("/") if word]
    if kind == "cluster":
        if words not in ([], ["0"]) or db:
            raise ConfigurationError(f"a Redis Cluster has no databases; leave {'/'.join(words) or f'db={db}'!r} out")
        return ClusterServers(_addresses(hosts, 6379, kind), settings)
    if not words:
        raise ConfigurationError(f"the URL names no service of the Sentinels; write {_FORMS[kind]}")
    if len(words) > 2 or not all(word.isdecimal() for word in words[1:]):
        raise ConfigurationError(f"'/{path}' is not a service and the number of a database; write {_FORMS[kind]}")
    settings["db"] = int(words[1]) if len(words) == 2 else db
    return SentinelServers(_addresses(hosts, 26379, kind), words[0], settings, own)


def _connect_args(query: str) -> dict[str, Any]:
    try:
        return dict(parse_url(f"redis://?{query}"))  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ConfigurationError(f"an option in the Redis URL cannot be read: {error}") from None


def _addresses(hosts: str, port: int, kind: str) -> list[Address]:
    found = {}
    for host in hosts.split(","):
        parts = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?", host)
        if parts is None:
            # Do not quote it: it may be a part of a password.
            raise ConfigurationError(f"the Redis URL has something that is no host and port; write {_FORMS[kind]}")
        found[Address(parts[1] or parts[2], int(parts[3] or port))] = True
    return list(found)
