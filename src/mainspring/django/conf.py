"""The settings: `MAINSPRING`, or django-q's `Q_CLUSTER` in a project that has it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from msgspec.structs import replace

from mainspring.core.quantities import check_count, check_lease, check_seconds
from mainspring.core.validation import check_queue
from mainspring.django.importing.q_cluster import translated
from mainspring.errors import near
from mainspring.jobstores.health import check_requirement
from mainspring.util import astimezone

__all__ = ["Conf", "conf", "patches", "read", "signing_keys"]

NAMES: Final = ("MAINSPRING", "Q_CLUSTER", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "TIME_ZONE", "DATABASES")
"""The settings that configure an app."""


class Conf(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a project, under our names."""

    url: str = "django://default"
    name: str = "mainspring"
    salt: str = "mainspring"
    """The name from which keys are derived, so two sites with one SECRET_KEY do not execute each other's runs."""
    queues: tuple[str, ...] = ()
    default_queue: str = "default"
    """The queue for calls through django-q's verbs."""
    processes: int = 0
    threads: int = 8
    max_runs: int | None = None
    max_rss: int | None = None
    timeout: float | None = None
    retries: int = 0
    backoff: tuple[float, ...] | None = None
    keep_runs: int = 100_000
    retention: float | None = None
    save_successes: bool = True
    inline: bool = False
    schedule: bool = True
    coalesce: bool = True
    timezone: str | None = None
    secret_key: Any = None
    allow_pickle: bool = False
    lease: float = 15.0
    require: str | None = None
    outbox: str | None = None
    """The alias of the database with the outbox, if the store is elsewhere."""
    reporters: tuple[str, ...] = ()
    error_reporter: Mapping[str, Any] = msgspec.field(default_factory=dict)
    label: str = "mainspring"
    log_level: str | None = None
    messages: tuple[CheckMessage, ...] = ()
    """The messages of `manage.py check` about the settings."""

    @property
    def alias(self) -> str | None:
        """The alias of the store's database; None if the store is elsewhere."""
        scheme, _, alias = self.url.partition("://")
        return (alias or "default") if scheme == "django" else None

    @property
    def tablename(self) -> str:
        """The name of the store's first table, from which the other names derive."""
        return f"{self.name}_jobs"

    def table(self, word: str) -> str:
        """Return the name of one of the store's tables."""
        return f"{self.name}_{word}"

    @property
    def options(self) -> dict[str, Any]:
        """The default options of tasks."""
        chosen = {"timeout": self.timeout, "retries": self.retries or None, "backoff": self.backoff}
        return {name: value for name, value in {**chosen, "retention": self.retention}.items() if value is not None}


def _is_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is True or False, not {value!r}")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} is a text, not {value!r}")
    return value


def _identifier(name: str, value: Any) -> str:
    if not _text(name, value).isidentifier():
        raise ValueError(f"{name} is part of the names of tables: letters, digits and underscores, not {value!r}")
    return str(value)


def _queues(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"{name} is a list of queues, not {value!r}")
    return tuple(map(check_queue, value))


def _reporters(name: str, value: Any) -> tuple[str, ...]:
    return tuple(_text(name, each) for each in value)


def _outbox(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return "default" if value else None
    return _text(name, value)


def _count_or_none(name: str, value: Any) -> int | None:
    return None if value is None else check_count(name, value)


def _seconds_or_none(name: str, value: Any) -> float | None:
    return None if value is None else check_seconds(name, value)


_CHECKS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "database": _text,
    "url": _text,
    "name": _identifier,
    "queues": _queues,
    "processes": lambda name, value: check_count(name, value, least=0),
    "threads": check_count,
    "max_runs": _count_or_none,
    "max_rss": _count_or_none,
    "timeout": _seconds_or_none,
    "retries": lambda name, value: check_count(name, value, least=0),
    "keep_runs": lambda name, value: check_count(name, value, least=0),
    "retention": _seconds_or_none,
    "inline": _is_bool,
    "timezone": lambda name, value: value if astimezone(value) is not None else None,
    "secret_key": lambda name, value: value,
    "allow_pickle": _is_bool,
    "lease": lambda name, value: check_lease(value),
    "require": lambda name, value: None if value is None else (check_requirement(value) and value),
    "outbox": _outbox,
    "reporters": _reporters,
}
"""Every key of MAINSPRING, with the check of its value."""


def read(source: Any = settings, cluster: str | None = None) -> Conf:
    """Read the settings, and note their faults; `cluster` names one of Q_CLUSTER's ALT_CLUSTERS."""
    theirs = getattr(source, "Q_CLUSTER", None)
    if patches and isinstance(theirs, Mapping | None):
        theirs = {**(theirs or {}), **patches}
    found, messages = translated(theirs, cluster, source) if theirs is not None else ({}, [])
    ours, more = _checked(getattr(source, "MAINSPRING", None) or {})
    if "url" in ours or "database" in ours:
        found.pop("url", None)
    if "database" in ours:
        ours["url"] = f"django://{ours.pop('database')}"
    if "name" in ours:
        found["salt"] = ours["name"]
    found = {"timezone": getattr(source, "TIME_ZONE", None), **found, **ours}
    made = Conf(**found, messages=(*messages, *more))
    if made.outbox is None or made.alias is None:
        return made
    text = "MAINSPRING['outbox'] is for a store that is elsewhere: runs in the project's database need none"
    return replace(made, outbox=None, messages=(*made.messages, Error(text, id="mainspring.E002")))


def _checked(given: Any) -> tuple[dict[str, Any], list[CheckMessage]]:
    if not isinstance(given, Mapping):
        return {}, [Error(f"MAINSPRING is a dict of settings, not {given!r}", id="mainspring.E002")]
    found: dict[str, Any] = {}
    messages: list[CheckMessage] = []
    for key, value in given.items():
        if key not in _CHECKS:
            hint = f"It can be one of: {', '.join(sorted(_CHECKS))}."
            messages.append(
                Error(f"MAINSPRING has no key {key!r}{near(str(key), _CHECKS)}", hint=hint, id="mainspring.E001")
            )
            continue
        try:
            found[key] = _CHECKS[key](key, value)
        except (TypeError, ValueError, LookupError) as error:
            messages.append(Error(f"MAINSPRING[{key!r}]: {error}", id="mainspring.E002"))
    if "url" in found and "database" in found:
        messages.append(Error("MAINSPRING has both 'url' and 'database'; give one of them", id="mainspring.E002"))
        del found["url"]
    return found, messages


def signing_keys(found: Conf, source: Any = settings) -> list[bytes] | Any:
    """Return the keys for signing and verifying, newest first; None if the project has no SECRET_KEY.

    They are derived from SECRET_KEY and SECRET_KEY_FALLBACKS, so they rotate as session keys do.
    """
    if found.secret_key is not None:
        return found.secret_key
    try:
        secrets = [source.SECRET_KEY, *getattr(source, "SECRET_KEY_FALLBACKS", ())]
    except ImproperlyConfigured:
        return None
    return list(dict.fromkeys(_derived(found.salt, secret) for secret in secrets if secret))


def _derived(salt: str, secret: str | bytes) -> bytes:
    key = secret.encode() if isinstance(secret, str) else secret
    return hashlib.sha256(b"\0".join([b"mainspring.django", salt.encode(), key])).digest()


patches: Final[dict[str, Any]] = {}
"""Keys of Q_CLUSTER that tests have set on django-q's `Conf`."""
_conf: Conf | None = None


def conf() -> Conf:
    """Return the project's settings, which are read once."""
    global _conf
    if _conf is None:
        _conf = read()
    return _conf


def _forget(*, setting: str, **_: Any) -> None:
    global _conf
    if setting in NAMES:
        _conf = None


setting_changed.connect(_forget, dispatch_uid="mainspring.django.conf")
