"""Explain SQLite's errors: what each means for the file, and what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
from typing import Final

__all__ = ["explain", "is_busy", "is_undecodable", "is_undone"]

_EFFECTIVE: Final = os.access in os.supports_effective_ids
_FULL_DISK_BYTES: Final = 65536
"""SQLite treats a disk with fewer free bytes than this as full."""


def _code(error: BaseException | None) -> int | None:
    """Return the kind of a SQLite error: the low byte of its code."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(error: BaseException | None) -> bool:
    """Return True if another connection has the lock, so that a retry may soon succeed."""
    return _code(error) == sqlite3.SQLITE_BUSY


def is_undone(error: BaseException) -> bool:
    """Return True if a COMMIT with this error has certainly not happened."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL)


def is_undecodable(error: BaseException | None) -> bool:
    """Return True if a statement failed because it read a text that is not valid UTF-8."""
    return isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error)


def explain(error: BaseException, path: str, patience: float) -> str:
    """Return what an error means for the file at `path`; empty if there is nothing to add to SQLite's own message."""
    kind = _code(error)
    if kind == sqlite3.SQLITE_FULL or (kind == sqlite3.SQLITE_IOERR and _is_full(path)):
        return f"the disk of {path} is full; free some space there, and the store goes on by itself"
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"other processes have kept {path} locked for {patience:g} s; the store goes on when they "
            f"release it; `fuser {path}` names the processes that have it open"
        )
    if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH):
        return _no_access(path)
    if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"{path} is damaged or is not an SQLite database; stop the programs that use it, keep a copy, and "
            f"restore a backup or the output of `sqlite3 {path} .recover`"
        )
    if kind == sqlite3.SQLITE_IOERR:
        return f"the disk of {path} failed to read or write; look at the system log"
    return ""


def _is_full(path: str) -> bool:
    try:
        return shutil.disk_usage(os.path.dirname(path)).free < _FULL_DISK_BYTES
    except OSError:
        return False


def _no_access(path: str) -> str:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"there is no folder {folder}; make it, or correct the URL"
    if os.path.isdir(path):
        return f"{path} is a folder; name a file in the URL"
    for place in (path, folder, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(place) and not os.access(place, os.W_OK, effective_ids=_EFFECTIVE):
            return (
                f"{place} cannot be written by this user, or its disk is mounted read-only; permit writing the file, "
                "its folder, and the -wal and -shm beside it"
            )
    if not os.path.exists(path):
        return f"there is no file {path} any more, or it cannot be made; look at its folder"
    return f"{path} or its folder cannot be written by this user; permit both"
