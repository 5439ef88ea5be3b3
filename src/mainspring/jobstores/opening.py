"""Open a store by its URL (a built-in scheme or an entry point), or accept a store object."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

from mainspring.core.references import ref_to_obj
from mainspring.core.showing.redaction import without_password
from mainspring.core.store_urls import SCHEMES, STORE_CLASSES, sqlite_file, store_scheme
from mainspring.errors import ConfigurationError, install_command, near
from mainspring.jobstores.base import JobStore
from mainspring.plugins import check_options, takes_option

__all__ = ["DEFAULT_NAME", "absent_file", "check_url", "open_for_app", "open_store"]

T = TypeVar("T")

DEFAULT_NAME: Final = "mainspring"
"""The name of an app without `name=`; with it, a store uses its own default names."""


def open_store(url: str | JobStore, **options: Any) -> JobStore:
    """Return the store at a URL such as `sqlite:///jobs.db`; `start` opens it."""
    if isinstance(url, JobStore):
        if options:
            raise TypeError(f"{next(iter(options))!r} cannot be given to a store object that exists already")
        return url
    scheme, factory = _factory(url)
    if scheme == "memory":  # a memory store has no location and keeps no bytes
        return _make(factory, scheme, {option: value for option, value in options.items() if option != "codec"})
    return _make(factory, scheme, options, url=url)


def open_for_app(url: str, name: str, **options: Any) -> JobStore:
    """Return an app's store; the app's name separates it from those of other apps at the same URL."""
    scheme, factory = _factory(url)
    if name != DEFAULT_NAME and scheme != "memory":
        named = {"name": name, "tablename": f"{name}_jobs"}
        taken = next((option for option in named if takes_option(factory, option)), None)
        if taken is None:
            raise ConfigurationError(
                f"the store for {scheme}:// takes no name, so the app {name!r} would share everything with all "
                "other apps there; leave name= out and give each app a URL of its own, or let the store take name="
            )
        options.setdefault(taken, named[taken])
    return open_store(url, **options)


def check_url(url: T) -> T:
    """Return a store's URL or a store; raise at once for anything else."""
    if isinstance(url, JobStore) or (isinstance(url, str) and "://" in url):
        return url
    if not isinstance(url, str):
        raise TypeError(f"a store is named by its URL, such as sqlite:///jobs.db, not {url!r}")
    if url.endswith((".db", ".sqlite", ".sqlite3")):
        hint = f"write it as sqlite:///{url}"
    else:
        hint = "write it as sqlite:///jobs.db or redis://localhost/0"
    raise ConfigurationError(f"{without_password(url)!r} is not a store's URL; {hint}")


def _factory(url: str) -> tuple[str, Any]:
    """Return the scheme of a URL without its driver, and the class of the store."""
    scheme = store_scheme(check_url(url))
    return scheme, _built_in(scheme) if scheme in SCHEMES else _plug_in(scheme)


def _make(factory: Any, scheme: str, options: dict[str, Any], **place: str) -> JobStore:
    try:
        check_options("store", f"{scheme}://", factory, options)
    except TypeError as error:
        raise ConfigurationError(str(error)) from None
    return factory(**place, **options)  # type: ignore[no-any-return]


def _built_in(scheme: str) -> Any:
    store, extra, *_ = SCHEMES[scheme]
    try:
        return ref_to_obj(STORE_CLASSES[store])
    except LookupError as error:
        raise ConfigurationError(
            f"{scheme}:// needs a driver that is not installed: {install_command(extra)} ({error})"
        ) from error


def _plug_in(scheme: str) -> Any:
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group="mainspring.jobstores")}
    if scheme in found:
        return found[scheme].load()
    known = {*SCHEMES, *found}
    hint = near(scheme, known) or f"; there are {', '.join(f'{each}://' for each in sorted(known))}"
    raise ConfigurationError(f"there is no store for {scheme}://{hint}")


def absent_file(url: str | JobStore) -> Path | None:
    """Return the SQLite file of a URL if it does not exist: opening would create it and hide a typo."""
    path = sqlite_file(url) if isinstance(url, str) else None
    return None if path is None or str(path).startswith("file:") or path.exists() else path
