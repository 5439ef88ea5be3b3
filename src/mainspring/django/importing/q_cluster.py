"""Translate django-q's settings: every key of `Q_CLUSTER`, with a remark if it means something else here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from django.core.checks import CheckMessage, Error, Info, Warning

from mainspring.core.validation import check_queue
from mainspring.errors import near

__all__ = ["KEYS", "translated"]

CLUSTER_VARIABLE: Final = "Q_CLUSTER_NAME"
IGNORED: Final = {
    "daemonize_workers": "worker processes end with their sentinel",
    "cpu_affinity": "the operating system places the processes; use taskset to bind them",
    "guard_cycle": "the sentinel hears of a death at once",
    "poll": "workers are woken by changes",
    "bulk": "workers claim what their slots finish in about 200 ms",
    "queue_limit": "workers claim what their slots finish in about 200 ms",
    "compress": "long payloads are always compressed",
    "testing": "use mainspring.django.testing",
    "save_limit_per": "retention is a setting of each task",
    "cache": "all results are in the store",
    "cached": "all results are in the store; cached=n of a call is its retention",
}
"""The keys without a meaning here, with the reasons."""
BROKERS: Final = ("iron_mq", "sqs", "orm", "mongo", "django_redis", "redis")
"""The keys that name a broker. django-q uses the first one that is set."""
CLASSES: Final = {"ORM": ("orm",), "Mongo": ("mongo",), "Redis": ("django_redis", "redis")}
"""The brokers of django-q with a counterpart here, by class name; `broker_class` takes precedence over the keys."""
Found = dict[str, Any]
Messages = list[CheckMessage]


def translated(given: Any, cluster: str | None, source: Any) -> tuple[Found, Messages]:
    """Return the settings of Q_CLUSTER as fields of `Conf`, with remarks."""
    if not isinstance(given, Mapping):
        return {}, [Error(f"Q_CLUSTER is a dict of settings, not {given!r}", id="mainspring.E002")]
    messages: Messages = []
    keys = dict(given)
    others = keys.pop("ALT_CLUSTERS", None) or {}
    cluster = cluster or os.environ.get(CLUSTER_VARIABLE) or None
    if cluster in others:
        keys |= {**others[cluster], "cluster_name": cluster}
    elif cluster is not None:
        keys["cluster_name"] = cluster
    _choose_broker(keys, messages)
    found: Found = {"threads": 1, "coalesce": not keys.get("catch_up", True)}
    if len(others):
        found["queues"] = tuple(sorted(map(str, others)))
    order = {key: place for place, key in enumerate(KEYS)}
    for key, value in sorted(keys.items(), key=lambda item: order.get(item[0], len(order))):
        if key in IGNORED:
            messages.append(_note(key, value, f"is not used: {IGNORED[key]}"))
        elif key in KEYS:
            try:
                KEYS[key](value, keys, found, messages, source)
            except (TypeError, ValueError) as error:
                messages.append(Error(f"Q_CLUSTER[{key!r}]: {error}", id="mainspring.E002"))
        elif key != "catch_up":
            known = {*KEYS, *IGNORED, "catch_up", "ALT_CLUSTERS"}
            messages.append(Warning(f"Q_CLUSTER has no key {key!r}{near(str(key), known)}", id="mainspring.W014"))
    return found, messages


def _choose_broker(keys: Found, messages: Messages) -> None:
    """Keep only the broker that django-q would use."""
    named = CLASSES.get(str(keys.get("broker_class")).rpartition(".")[2], ())
    given = [key for key in (*named, *BROKERS) if keys.get(key) or isinstance(keys.get(key), dict)]
    for key in BROKERS:
        value = keys.pop(key, None) if key not in given[:1] else None
        if value:
            messages.append(_note(key, value, f"is not used: django-q takes {given[0]!r}, too"))


def _note(key: str, value: Any, text: str) -> Info:
    return Info(f"Q_CLUSTER[{key!r}] = {value!r} {text}", id="mainspring.I020")


def _name(value: str, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    found["salt"] = str(value)
    with suppress(ValueError, TypeError):  # the name is not valid for a queue
        found.setdefault("default_queue", check_queue(value))  # django-q names the cluster after the project
    if str(found.get("url", "django")).partition(":")[0] != "django" and str(value) != "default":
        found["name"] = str(value)


def _redis(value: Any, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    if isinstance(value, str):
        found["url"] = value
        return
    host, port, number = value.get("host", "localhost"), value.get("port", 6379), value.get("db", 0)
    password = f":{quote(str(value['password']), safe='')}@" if value.get("password") else ""
    found["url"] = f"redis://{password}{host}:{port}/{number}"


def _django_redis(value: str, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    location = getattr(source, "CACHES", {}).get(value, {}).get("LOCATION")
    if not location:
        raise ValueError(f"there is no cache {value!r} with a LOCATION in CACHES")
    found["url"] = location if isinstance(location, str) else location[0]


def _mongo(value: Any, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    base = value if isinstance(value, str) else f"mongodb://{value.get('host', 'localhost')}:{value.get('port', 27017)}"
    found["url"] = f"{base.rstrip('/')}/{keys.get('mongo_db') or 'mainspring'}"


def _no_broker(value: Any, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    messages.append(
        Error(
            "Q_CLUSTER names a broker (sqs, iron_mq or a broker_class) that has no counterpart here",
            hint="A queue alone cannot track runs: use the database (orm) or redis, or keep django-q for this.",
            id="mainspring.E007",
        )
    )


def _broker_class(value: Any, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    if value and not keys.keys() & {*CLASSES.get(str(value).rpartition(".")[2], ())}:
        _no_broker(value, keys, found, messages, source)


def _workers(value: int, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    found["processes"] = int(value)
    text = "is the number of processes, with one thread each; raise MAINSPRING['threads'] where tasks may share one"
    messages.append(_note("workers", value, text))


def _retry(value: float | None, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    if value and int(keys.get("max_attempts") or 0) > 1:
        found["backoff"] = (float(value),)
    else:
        text = "is not used without max_attempts: a living worker never loses its run"
        messages.append(_note("retry", value, text))


def _max_attempts(value: int | None, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    found["retries"] = max(0, int(value or 0) - 1)
    if not value:
        messages.append(
            Info("Q_CLUSTER['max_attempts'] = 0 means one attempt here, never endless ones", id="mainspring.W014")
        )


def _ack_failures(value: bool, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    if not value and not keys.get("max_attempts"):
        messages.append(_note("ack_failures", value, "is final here: a failed run is not tried again without retries"))


def _save_limit(value: int, keys: Found, found: Found, messages: Messages, source: Any) -> None:
    if int(value) > 0:
        found["keep_runs"] = int(value)
    found["save_successes"] = int(value) >= 0


def _set(field: str, read: Callable[[Any], Any] = lambda value: value) -> Callable[..., None]:
    def put(value: Any, keys: Found, found: Found, messages: Messages, source: Any) -> None:
        found[field] = read(value)

    return put


KEYS: Final[dict[str, Callable[..., None]]] = {
    # Brokers come before `name`, which also names the store of some of them.
    "orm": _set("url", "django://{}".format),
    "redis": _redis,
    "django_redis": _django_redis,
    "mongo": _mongo,
    "mongo_db": lambda *_: None,  # part of the URL that `mongo` makes
    "sqs": _no_broker,
    "iron_mq": _no_broker,
    "broker_class": _broker_class,
    "name": _name,
    "cluster_name": _set("default_queue", str),
    "workers": _workers,
    "recycle": _set("max_runs", lambda value: int(value) if value else None),
    "max_rss": _set("max_rss", lambda value: None if value is None else int(value) * 1024),
    "timeout": _set("timeout", lambda value: float(value) if value else None),
    "retry": _retry,
    "max_attempts": _max_attempts,
    "ack_failures": _ack_failures,
    "save_limit": _save_limit,
    "scheduler": _set("schedule"),
    "sync": _set("inline"),
    "time_zone": _set("timezone"),
    "label": _set("label"),
    "log_level": _set("log_level"),
    "error_reporter": _set("error_reporter"),
}
"""Every key of Q_CLUSTER that has a meaning here."""
