"""Find the signing keys: given in code, in the environment, or in a file beside a SQLite database."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mainspring.codec import Keyring
from mainspring.core.store_urls import sqlite_file, store_scheme
from mainspring.errors import ConfigurationError

__all__ = ["KEY_VARIABLE", "absent_key_file", "find_keyring"]

KEY_VARIABLE: Final = "MAINSPRING_SECRET_KEY"
_LONGEST_FILE_BYTES: Final = 65_536

log = logging.getLogger("mainspring.keys")


def find_keyring(given: str | bytes | Sequence[str | bytes] | None, url: str | None) -> Keyring | None:
    """Return the keys to sign and verify with, newest first; None if there are none.

    `given` takes precedence over the environment (several keys separated by commas), and that over the key file of
    SQLite. A store in memory gets a random key, since no other process needs it.
    """
    if given is not None:
        return Keyring([given] if isinstance(given, str | bytes) else list(given))
    value = os.environ.get(KEY_VARIABLE)
    if value is not None:
        keys = [key.strip() for key in value.split(",") if key.strip()]
        if not keys:
            raise ConfigurationError(f"{KEY_VARIABLE} is set but empty; unset it, or put a key into it")
        return Keyring(keys)
    if url is None:
        return None
    if store_scheme(url) == "memory":
        return Keyring([secrets.token_bytes(32)])
    database = sqlite_file(url)
    return None if database is None else Keyring([_key_beside(database)])


def absent_key_file(given: object, url: object) -> Path | None:
    """Return the path of the key file if a SQLite database exists without it and no other key is given; else None.

    A command that only reads such a database must not make a key: another key has signed the records.
    """
    if given is not None or os.environ.get(KEY_VARIABLE) is not None or not isinstance(url, str):
        return None
    database = sqlite_file(url)
    if database is None or not database.is_file() or not database.stat().st_size:
        return None
    path = _path_beside(database)
    return None if os.path.lexists(path) else path


def _path_beside(database: Path) -> Path:
    return database.with_name(database.name + ".key")


def _key_beside(database: Path) -> str:
    """Read the key file of a database, or make one that only its owner can read; many processes may do so at once."""
    path = _path_beside(database)
    for _ in range(2):
        try:
            key = _read_private(path)
        except FileNotFoundError:
            _make(path)
            continue
        if not key:
            raise ConfigurationError(f"the key file {str(path)!r} is empty; restore it, or delete it to have one made")
        return key
    raise ConfigurationError(f"the key file {str(path)!r} cannot be made; check the permissions of its folder")


def _read_private(path: Path) -> str:
    """Return the contents of a key file; refuse a file that others can read or may have put there.

    In a folder that others can write to, an attacker could plant a key and a database signed with it. So check the file
    after opening it, when nobody can replace it any more.
    """
    try:
        # Do not block: a named pipe at this path would make us wait for ever.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise ConfigurationError(
                f"the key file {str(path)!r} is a symbolic link, and links are not followed: whoever made it would "
                f"choose the key; put the file itself there, or set {KEY_VARIABLE}"
            ) from None
        raise ConfigurationError(
            f"the key file {str(path)!r} cannot be read ({error.strerror}); run as its owner, or set {KEY_VARIABLE}"
        ) from error
    try:
        _check_private(path, os.fstat(fd))
        return os.read(fd, _LONGEST_FILE_BYTES).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"the key file {str(path)!r} is not a file; remove it to have one made")
    if os.name != "posix":
        return
    if found.st_uid not in (0, os.geteuid()):
        owner, own = _user(found.st_uid), _user(os.geteuid())
        raise ConfigurationError(
            f"the key file {str(path)!r} belongs to {owner}, who could sign whatever {own} then executes; run as "
            f"{owner}, or, if the database is yours, chown both or set {KEY_VARIABLE}"
        )
    if found.st_mode & 0o077:
        raise ConfigurationError(
            f"the key file {str(path)!r} can be read by others (mode {found.st_mode & 0o777:o}); chmod 600 it, and "
            "make a new key if somebody may have read it"
        )


def _user(number: int) -> str:
    import pwd  # not on Windows

    try:
        return f"the user {pwd.getpwuid(number).pw_name!r}"
    except KeyError:
        return f"the user {number}"


def _make(path: Path) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        folder = path.parent
        # Do not make the folder: a typo in the URL would then create a folder, an empty database and another key.
        if not folder.is_dir():
            raise ConfigurationError(f"there is no folder {str(folder)!r}; make it, or correct the URL") from None
        raise ConfigurationError(
            f"a key for {path.stem!r} cannot be made in the folder {str(folder.resolve())!r} ({error.strerror}); "
            f"permit writing there, or correct the URL"
        ) from error
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # atomic; fails if another process was first
        log.info("made the signing key %s; keep it with the database", path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
