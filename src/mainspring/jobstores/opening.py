"""Open a store by its URL: built-in schemes, then entry points, then an object that is a store already."""

from __future__ import annotations

import re
from typing import Any, Final

from mainspring.errors import ConfigurationError, near
from mainspring.jobstores.base import JobStore
from mainspring.task import ref_to_obj

__all__ = ["open_store", "without_password"]

# scheme -> class, the extra that installs its driver
_SCHEMES: Final = {
    "memory": ("mainspring.jobstores.memory:MemoryJobStore", ""),
    "sqlite": ("mainspring.jobstores.sqlalchemy:SQLAlchemyJobStore", "sqlalchemy"),
    "postgresql": ("mainspring.jobstores.sqlalchemy:SQLAlchemyJobStore", "postgresql"),
    "postgres": ("mainspring.jobstores.sqlalchemy:SQLAlchemyJobStore", "postgresql"),
    "mysql": ("mainspring.jobstores.sqlalchemy:SQLAlchemyJobStore", "mysql"),
    "mariadb": ("mainspring.jobstores.sqlalchemy:SQLAlchemyJobStore", "mysql"),
    "redis": ("mainspring.jobstores.redis:RedisJobStore", "redis"),
    "rediss": ("mainspring.jobstores.redis:RedisJobStore", "redis"),
    "unix": ("mainspring.jobstores.redis:RedisJobStore", "redis"),
}


def open_store(url: str | JobStore, **options: Any) -> JobStore:
    """Return the store at a URL such as `sqlite:///jobs.db`; nothing is opened before it is started."""
    if isinstance(url, JobStore):
        if options:
            raise TypeError(f"{next(iter(options))!r} cannot be given to a store that is made already")
        return url
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError(
            f"{without_password(url)!r} is not a store's URL; write it as sqlite:///jobs.db or redis://localhost/0"
        )
    dialect = scheme.partition("+")[0]
    if dialect in _SCHEMES:
        reference, extra = _SCHEMES[dialect]
        factory = _import(reference, dialect, extra)
        return factory() if dialect == "memory" else factory(url=url, **options)  # type: ignore[no-any-return]
    return _plug_in(dialect)(url=url, **options)  # type: ignore[no-any-return]


def _import(reference: str, scheme: str, extra: str) -> Any:
    try:
        return ref_to_obj(reference)
    except LookupError as error:
        raise ConfigurationError(
            f'{scheme}:// needs a driver that is not installed: pip install "mainspring[{extra}]" ({error})'
        ) from error


def _plug_in(scheme: str) -> Any:
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group="mainspring.jobstores")}
    if scheme in found:
        return found[scheme].load()
    raise ConfigurationError(f"no store is known for {scheme}://{near(scheme, {*_SCHEMES, *found})}")


def without_password(url: str) -> str:
    """Return a URL that may be shown."""
    # Up to the last @, since a password may hold any character, written as it should be or not.
    shown = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&;][^=&]*(?:passw|pwd|secret|token)[^=&]*=)[^&;\s]*", r"\1***", shown)
