"""Judge a SQL database by its settings: whether acknowledged writes survive a crash, and what else may go wrong."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.jobstores.health import Health
from mainspring.jobstores.sqlalchemy.meta import number
from mainspring.jobstores.sqlalchemy.schema import WORDS

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.database import Database
    from mainspring.jobstores.sqlalchemy.transaction import Tx

__all__ = ["file_system", "health", "standbys"]

IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "gfs2", "glusterfs", "lustre"})
FREE_DISK_BYTES: Final = 100_000_000
"""At least this many bytes should be free on the disk of a SQLite file."""
_POSTGRESQL_FAULTS: Final = {
    "fsync": "a power failure may destroy the whole database",
    "full_page_writes": "a power failure may leave pages half written",
    "synchronous_commit": "a crash of the server undoes the last moments",
}
"""The risk of each setting that is off."""
_POSTGRESQL: Final = [
    *_POSTGRESQL_FAULTS, "lock_timeout", "plan_cache_mode", "server_version", "statement_timeout",
    "synchronous_standby_names",
]  # fmt: skip
_MARIADB: Final = ["binlog_format", "innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog", "version"]


def health(database: Database) -> Health:
    """Return how durable a database is by its settings; on a server, also the size of the tables."""
    if database.kind == "sqlite":  # use the writer connection: `synchronous` is a setting of each connection
        return database.write(lambda tx: _sqlite(tx, database.path))  # type: ignore[attr-defined]
    return database.read(_postgresql if database.kind == "postgresql" else _mariadb)


def _health(tx: Tx, version: str, faults: list[str], good: str, warnings: list[str], replicas: int = 0) -> Health:
    return Health(
        durable=not faults,
        replicas=0 if faults else replicas,
        reasons=tuple(faults) or (good,),
        version=version,
        schema=number(tx, "schema"),
        warnings=tuple(warnings),
    )


def _one(tx: Tx, statement: str) -> Any:
    [(value,)] = tx.all(statement)
    return value


# -- SQLite --------------------------------------------------------------------------------------------------------


def _sqlite(tx: Tx, path: str | None) -> Health:
    version = f"SQLite {_one(tx, 'SELECT sqlite_version()')}"
    faults: list[str] = []
    warnings: list[str] = []
    if path is None:
        faults += ["the database is in the memory of this process and ends with it; name a file: sqlite:///jobs.db"]
        return _health(tx, version, faults, "", warnings)
    mode, sync = str(_one(tx, "PRAGMA journal_mode")), int(_one(tx, "PRAGMA synchronous"))
    if mode in ("off", "memory"):
        faults.append(f"journal_mode is {mode}: a crash in a transaction may destroy the file; set it to wal")
    elif sync < 2:
        faults.append(
            f"synchronous is {('OFF', 'NORMAL')[sync]}: it survives kill -9, but a power failure undoes the last "
            'moments; set synchronous="FULL"'
        )
    elif mode == "delete" and sync < 3:
        faults.append("journal_mode is delete: a power failure may undo the last commit; set it to wal")
    if sys.platform == "darwin":
        faults.append("macOS lets SQLite's data wait in the drive; only its fullfsync would survive a power failure")
    kind = file_system(path)
    if kind in IN_MEMORY:
        faults.append(f"{path} is on a {kind}, which is memory: gone with a reboot; put it on a disk")
    elif kind in REMOTE or kind.startswith("fuse."):
        faults.append(f"{path} is on a network file system ({kind}), whose locks SQLite cannot trust; use a local disk")
    elif kind == "overlay":
        warnings.append(f"{path} is on an overlay: it is lost with its container; put it on a volume")
    if mode != "wal":
        warnings.append(f"the journal mode is {mode}, not wal: readers and writers wait for each other")
    if (free := shutil.disk_usage(os.path.dirname(path)).free) < FREE_DISK_BYTES:
        warnings.append(f"{free / 1e6:.0f} MB are free on the disk of {path}; make room before it is full")
    good = f"journal_mode is {mode} and synchronous is FULL, on a local disk{f' ({kind})' if kind else ''}"
    return _health(tx, version, faults, good, warnings)


def file_system(path: str) -> str:
    """Return the kind of file system of a file; empty if unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for mount in mounts:
        left, _, right = mount.partition(" - ")
        point = left.split(" ")[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of several mounts on one path, the last one counts
            best, kind = point, right.split(" ")[0]
    return kind


# -- PostgreSQL ----------------------------------------------------------------------------------------------------


def _postgresql(tx: Tx) -> Health:
    known: dict[str, str] = dict(tx.all("SELECT name, setting FROM pg_settings WHERE name {in}", tx.many(_POSTGRESQL)))
    faults = [f"{name} is off: {risk}; set it on" for name, risk in _POSTGRESQL_FAULTS.items() if known[name] == "off"]
    commit, names, replicas = known["synchronous_commit"], known["synchronous_standby_names"], 0
    good, warnings = f"fsync is on, synchronous_commit is {commit}", []
    if commit in ("on", "remote_apply", "remote_write") and (replicas := standbys(names)):
        good += f", and each commit waits for {replicas} of the standbys {names!r}"
        if (seen := _one(tx, "SELECT count(*) FROM pg_stat_replication")) < replicas:
            warnings.append(f"{seen} of {replicas} synchronous standbys are connected: commits wait for more")
    if "0" in (known["statement_timeout"], known["lock_timeout"]):
        warnings.append(
            "statement_timeout or lock_timeout is 0 on these connections, as behind a pooler: a call may wait for "
            "ever; ALTER ROLE ... SET statement_timeout = '4500ms', and lock_timeout"
        )
    if known["plan_cache_mode"] != "force_generic_plan":
        warnings.append("plan_cache_mode is not force_generic_plan, so plans may go astray; ALTER ROLE ... SET it")
    found = _health(tx, f"PostgreSQL {known['server_version']}", faults, good, warnings, replicas)
    parts = " + ".join(f"pg_total_relation_size('{{{word}}}'::regclass)" for word in WORDS)
    return replace(found, size=int(_one(tx, f"SELECT {parts}")))


def standbys(names: str) -> int:
    """Return how many standbys a commit waits for, given `synchronous_standby_names`."""
    if not names.strip():
        return 0
    found = re.match(r"\s*(?:(?:first|any)\s+)?(\d+)\s*\(", names, re.IGNORECASE)
    return int(found[1]) if found else 1


# -- MariaDB and MySQL ---------------------------------------------------------------------------------------------


def _mariadb(tx: Tx) -> Health:
    known: dict[str, str] = dict(tx.all("SHOW GLOBAL VARIABLES WHERE Variable_name {in}", tx.many(_MARIADB)))
    flush, sync, binlog = known["innodb_flush_log_at_trx_commit"], known["sync_binlog"], known["log_bin"] == "ON"
    faults, warnings = [], []
    if flush not in ("1", "3"):  # 3, which MariaDB has, syncs even more often
        faults.append(
            f"innodb_flush_log_at_trx_commit is {flush}: it survives kill -9{' only in part' if flush == '0' else ''}, "
            "but a power failure undoes about a second; set it to 1"
        )
    if binlog and sync != "1":
        faults.append(
            f"sync_binlog is {sync} with the binary log on: a power failure may undo commits that the log has lost; "
            "set it to 1"
        )
    if binlog and known["binlog_format"] == "STATEMENT":
        warnings.append("binlog_format is STATEMENT, which SKIP LOCKED is not safe with; set it to ROW")
    good = f"innodb_flush_log_at_trx_commit is {flush}, " + ("sync_binlog is 1" if binlog else "there is no binlog")
    version = f"{'MariaDB' if 'mariadb' in known['version'].lower() else 'MySQL'} {known['version']}"
    tables = [name.rpartition(".")[2].strip("`") for name in tx.database.names.values()]
    sizes = "SELECT coalesce(sum(data_length + index_length), 0) FROM information_schema.tables"
    [(size,)] = tx.all(f"{sizes} WHERE table_schema = database() AND table_name {{in}}", tx.many(tables))
    return replace(_health(tx, version, faults, good, warnings), size=int(size))
