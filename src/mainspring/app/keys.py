"""Where an app's signing keys come from: given, from the environment, or a file beside a SQLite database."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mainspring.codec import Keyring
from mainspring.errors import ConfigurationError

__all__ = ["KEY_VARIABLE", "find_keyring"]

KEY_VARIABLE: Final = "MAINSPRING_SECRET_KEY"

log = logging.getLogger("mainspring.keys")


def find_keyring(given: str | bytes | Sequence[str | bytes] | None, url: str | None) -> Keyring | None:
    """Return the keys to sign and verify with, newest first; None if there are none.

    `given` wins over the environment (several keys separated by commas), which wins over the key file of SQLite. What
    lives in memory is signed with a key that nobody else needs.
    """
    if given is not None:
        return Keyring([given] if isinstance(given, str | bytes) else list(given))
    value = os.environ.get(KEY_VARIABLE)
    if value is not None:
        keys = [key.strip() for key in value.split(",") if key.strip()]
        if not keys:
            raise ConfigurationError(f"{KEY_VARIABLE} is set but empty; unset it, or put a key into it")
        return Keyring(keys)
    if url is not None and url.startswith("memory:"):
        return Keyring([secrets.token_bytes(32)])
    database = _sqlite_file(url)
    return None if database is None else Keyring([_key_beside(database)])


def _sqlite_file(url: str | None) -> Path | None:
    if url is None or not url.startswith("sqlite"):
        return None
    scheme, _, rest = url.partition("://")
    path = rest.partition("?")[0]
    if scheme.partition("+")[0] != "sqlite" or path in ("", "/", "/:memory:") or not path.startswith("/"):
        return None
    return Path(path[1:])


def _key_beside(database: Path) -> str:
    """Read the key file of a database, or make it: readable by its owner only, and made once even by many at a time."""
    path = database.with_name(database.name + ".key")
    for _ in range(2):
        try:
            _check_private(path)
            key = path.read_text(encoding="ascii").strip()
            if not key:
                raise ConfigurationError(
                    f"the key file {str(path)!r} is empty; restore it, or delete it to have one made"
                )
            return key
        except FileNotFoundError:
            _make(path)
    raise ConfigurationError(f"the key file {str(path)!r} cannot be made; check the permissions of its folder")


def _check_private(path: Path) -> None:
    mode = path.stat().st_mode
    if os.name == "posix" and mode & 0o077:
        raise ConfigurationError(
            f"the key file {str(path)!r} can be read by others (mode {mode & 0o777:o}); chmod 600 it, and make a new "
            "key if somebody may have read it"
        )


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # whole or not at all; fails if somebody else was first
        log.info("made the signing key %s; keep it with the database", path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
