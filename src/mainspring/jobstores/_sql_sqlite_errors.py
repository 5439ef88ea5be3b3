"""What SQLite's errors mean for whoever has the file, and what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
from typing import Final

__all__ = ["UNDONE", "explain"]

UNDONE: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY})
"""With these a COMMIT has certainly not happened."""
_PAGE: Final = 65536
"""Bytes: with fewer free, a disk is full for SQLite."""


def explain(error: BaseException, path: str, patience: float) -> str:
    """Say what an error means for the file at `path`, empty if its own words have to do."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return ""
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and _is_full(path)):
        return f"the disk of {path} is full, and nothing was changed; make room there, then it goes on by itself"
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"another process has kept {path} locked for {patience:g} s; it goes on when that ends, and `fuser {path}` "
            "names who has it open"
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH):
        return _no_access(path)
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"{path} is damaged or is no database of SQLite's; stop what uses it, keep a copy, and restore a backup or "
            f"what `sqlite3 {path} .recover` saves"
        )
    if primary == sqlite3.SQLITE_IOERR:
        return f"the disk of {path} failed to read or write; look at the system's log"
    return ""


def _is_full(path: str) -> bool:
    try:
        return shutil.disk_usage(os.path.dirname(path)).free < _PAGE
    except OSError:
        return False


def _no_access(path: str) -> str:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"there is no folder {folder}; make it, or correct the URL"
    if os.path.isdir(path):
        return f"{path} is a folder; name a file in the URL"
    for place in (path, folder, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(place) and not os.access(place, os.W_OK):
            also = " (the folder, too, has to be writable: the log is beside the file)" if place == folder else ""
            return f"{place} cannot be written by this user, or its disk is mounted read-only; permit it{also}"
    if not os.path.exists(path):
        return f"there is no file {path} any more, or it cannot be made; look at its folder"
    return f"{path} or its folder cannot be written by this user; permit both"
