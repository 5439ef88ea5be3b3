"""The configuration of a scheduler: keywords, nested dicts, or flat prefixed keys as in an INI section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mainspring.codec import Codec
from mainspring.codec.key_sources import KEY_VARIABLE, find_keyring
from mainspring.core.quantities import check_seconds
from mainspring.core.validation import POLICY_FIELDS
from mainspring.errors import ConfigurationError, near
from mainspring.util import asbool

__all__ = ["OPTIONS", "as_bool", "gather", "take"]

PREFIXES: Final = ("mainspring.", "apscheduler.")
OPTIONS: Final = frozenset(
    {"logger", "timezone", "jobstore_retry_interval", "job_defaults", "executors", "jobstores", "clock", "lease"}
    | {"types", "secret_key", "allow_pickle", "alerts"}
)
JOB_FIELDS: Final = ("executor", "queue", "misfire_grace_time", "coalesce", "max_instances", "overlap")
"""The fields of a job that `job_defaults` can set, besides those of its policy."""


def gather(settings: Mapping[str, Any], prefix: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge prefixed flat keys and keyword options into one nested dict; ignore keys with another prefix."""
    prefixes = PREFIXES if prefix in PREFIXES else (prefix,) if prefix else ("",)
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        for known in prefixes:
            if key.startswith(known):
                _place(tree, key[len(known) :].split("."), value, key)
                break
    for key, value in options.items():
        tree[key] = value
    return tree


def _place(tree: dict[str, Any], path: list[str], value: Any, key: str) -> None:
    *parents, leaf = path
    for part in parents:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigurationError(f"the setting {key!r} is below {part!r}, which has a value itself")
    if isinstance(tree.get(leaf), dict) and isinstance(value, Mapping):
        tree[leaf].update(value)
    else:
        tree[leaf] = dict(value) if isinstance(value, Mapping) else value


def check_names(tree: Mapping[str, Any], extra: frozenset[str]) -> None:
    """Raise for an option that this kind of scheduler does not have."""
    for name in tree:
        if name not in OPTIONS and name not in extra:
            raise ConfigurationError(f"a scheduler has no option {name!r}{near(name, OPTIONS | extra)}")


def as_bool(name: str, value: Any) -> bool:
    """Read a boolean, which may be text."""
    try:
        return asbool(value)
    except ValueError:
        raise ConfigurationError(f"{name} must be true or false, not {value!r}") from None


def make_codec(tree: Mapping[str, Any]) -> Codec | None:
    """Return the codec for `types`, `secret_key` and `allow_pickle`, or None if none of them is set."""
    if not {"types", "secret_key", "allow_pickle"} & tree.keys():
        return None
    keyring = find_keyring(tree.get("secret_key"), None)
    pickles = as_bool("allow_pickle", tree.get("allow_pickle", False))
    if pickles and keyring is None:
        raise ConfigurationError(
            "allow_pickle=True needs a key, so that only your own pickles are read: give secret_key=..., too, or set "
            f"{KEY_VARIABLE}"
        )
    return Codec(keyring, types=tree.get("types", ()), allow_pickle=pickles)


def take(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Read the description of an executor or store: `{"type": name, ...}` or `{"class": "module:Class", ...}`."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be an object or a dict with 'type' or 'class', not {value!r}")
    options = dict(value)
    kind = options.pop("type", None) or options.pop("class", None)
    options.pop("class", None)
    if not kind:
        raise ConfigurationError(f"{name} has neither 'type' nor 'class'; there are {', '.join(options) or 'no keys'}")
    return str(kind), options


def read_job_defaults(given: Any) -> dict[str, Any]:
    """Read `job_defaults`, which may be text: any attribute of a job or of its policy."""
    known = {*JOB_FIELDS, *POLICY_FIELDS}
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"job_defaults must be a dict, not {given!r}")
    defaults: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigurationError(f"job_defaults has no {name!r}{near(name, known)}")
        if isinstance(value, str) and name not in ("executor", "queue", "delivery", "overlap"):
            value = _from_text(name, value)
        defaults[name] = value
    return defaults


def _from_text(name: str, value: str) -> Any:
    label = f"job_defaults.{name}"
    if value.strip().lower() in ("", "none"):
        return None
    if name == "coalesce":
        return as_bool(label, value)
    if name in ("max_instances", "retries", "priority"):
        try:
            return int(value)
        except ValueError:
            raise ConfigurationError(f"{label} must be a whole number, not {value!r}") from None
    return check_seconds(label, value, text=True)
