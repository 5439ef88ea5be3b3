"""URLs with several hosts: scheme://user:password@host1:port1,host2:port2/path?option=value."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError, near
from mainspring.jobstores.opening import DEFAULT_NAME

__all__ = ["Location", "named_path", "parse_url"]


class Location(NamedTuple):
    """The parts of a URL; each host has its port."""

    scheme: str
    hosts: tuple[str, ...]
    user: str | None
    password: str | None
    path: str
    options: dict[str, str]


def parse_url(url: str, port: int, options: Collection[str]) -> Location:
    """Take a URL apart; raise ConfigurationError for an option that the store does not have."""
    parts = urlsplit(url)
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    found = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in found:
        if option not in options:
            raise ConfigurationError(f"{without_password(url)}: there is no option {option!r}{near(option, options)}")
    hosts = tuple(_with_port(host, port) for host in where.split(",") if host)
    return Location(
        parts.scheme,
        hosts or (f"127.0.0.1:{port}",),
        unquote(user) if user else None,
        unquote(password) if user else None,
        unquote(parts.path).rstrip("/"),
        found,
    )


def named_path(path: str, location: Location | None, name: str) -> str:
    """Return the path of a store: that of the URL, by default /mainspring; without a URL, the given path.

    An app with a name gets a separate path below it.
    """
    if location is not None:
        path = location.path or "/mainspring"
    if not path:
        raise ValueError('The "path" parameter must not be empty')
    path = "/" + path.strip("/")
    return path if name == DEFAULT_NAME else f"{path.rstrip('/')}/{name}"


def _with_port(host: str, port: int) -> str:
    return host if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else f"{host}:{port}"
