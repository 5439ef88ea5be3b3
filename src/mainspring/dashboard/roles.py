"""Roles, and the accounts that have them, with hashed passwords, from a file or from code."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from mainspring.errors import ConfigurationError, near
from mainspring.locks import free_in_children

__all__ = ["Accounts", "Identity", "Role", "hash_password"]

_COST: Final = (2**14, 8, 1)
"""The parameters of scrypt: about 50 ms and 16 MB per try."""


class Role(StrEnum):
    """The rights of a person: `view` looks, `operate` acts, `admin` also stops nodes."""

    VIEW = "view"
    OPERATE = "operate"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Return True if this role has all rights of another."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Identity(NamedTuple):
    """A visitor's name and role."""

    name: str
    role: Role


class _Account(NamedTuple):
    role: Role
    hashed: str


def hash_password(password: str, salt: bytes | None = None) -> str:
    """Return a password's hash for the accounts file."""
    salt = secrets.token_bytes(16) if salt is None else salt
    cost, block, parallel = _COST
    digest = hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel)
    return f"scrypt:{cost}:{block}:{parallel}:{salt.hex()}:{digest.hex()}"


def _is_password(password: str, hashed: str) -> bool:
    try:
        _, cost, block, parallel, salt, digest = hashed.split(":")
        found = hashlib.scrypt(
            password.encode(), salt=bytes.fromhex(salt), n=int(cost), r=int(block), p=int(parallel), maxmem=2**26
        )
    except ValueError:
        return False
    return hmac.compare_digest(found.hex(), digest)


_NOBODY: Final = f"scrypt:{_COST[0]}:{_COST[1]}:{_COST[2]}:{'00' * 16}:{'00' * 64}"
"""The hash to check for an unknown account, so that the response time reveals nothing."""


class Accounts:
    """The people who may log in. A file has a line `NAME ROLE HASH` for each, and is read again when it changes."""

    def __init__(self, given: Mapping[str, tuple[str, str]] | None = None, file: Path | None = None) -> None:
        """Take accounts as `{name: (role, hash)}`, or a file of them."""
        self._file, self._stamp = file, 0
        self._lock = free_in_children(threading.Lock())
        self._accounts = {name: _Account(_role(role, name), hashed) for name, (role, hashed) in (given or {}).items()}
        if file is not None:
            self._read()
        if not self._accounts:
            raise ConfigurationError(f"{'no account is given' if file is None else f'{file} names no account'}")

    def role_of(self, name: str) -> Role | None:
        """Return the current role of an account, or None if no account has exactly this name."""
        self._read_again()
        account = self._accounts.get(name)
        return None if account is None else account.role

    def check(self, name: str, password: str) -> Identity | None:
        """Return the identity with this name and password, or None."""
        self._read_again()
        account = self._accounts.get(name)
        right = _is_password(password, _NOBODY if account is None else account.hashed)
        return Identity(name, account.role) if account is not None and right else None

    def _read_again(self) -> None:
        if self._file is None:
            return
        with self._lock:
            try:
                changed = self._file.stat().st_mtime_ns != self._stamp
            except OSError:  # an editor may be replacing the file: keep the known accounts
                return
            if changed:
                self._read()

    def _read(self) -> None:
        assert self._file is not None
        try:
            self._stamp = self._file.stat().st_mtime_ns
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigurationError(f"the accounts in {self._file} cannot be read: {error.strerror}") from error
        found: dict[str, _Account] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 3 or not words[2].startswith("scrypt:"):
                raise ConfigurationError(
                    f"line {number} of {self._file} is no account; `mainspring dashboard --add-user NAME` writes one"
                )
            found[words[0]] = _Account(_role(words[1], words[0]), words[2])
        self._accounts = found


def _role(role: str, name: str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise ConfigurationError(f"{name!r} has the role {role!r}{near(role, list(Role))}") from None
