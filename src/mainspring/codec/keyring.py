"""The keys that sign and verify."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from mainspring.errors import ConfigurationError

__all__ = ["KEY_ID_BYTES", "MIN_KEY_BYTES", "Keyring"]

MIN_KEY_BYTES: Final = 16
KEY_ID_BYTES: Final = 4
_SHA256_BLOCK_BYTES: Final = 64
"""The block size of SHA-256 in bytes."""
_ID_DOMAIN: Final = b"mainspring key id 1"
_MAKE_ONE: Final = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'


class Keyring:
    """Secret keys, newest first: the newest signs, all of them verify. Immutable."""

    __slots__ = ("_by_id", "_macs", "signing_id")

    signing_id: bytes
    _by_id: dict[bytes, bytes]
    _macs: dict[bytes, tuple[Any, Any]]

    def __init__(self, keys: Sequence[str | bytes]) -> None:
        if isinstance(keys, str | bytes):
            raise ConfigurationError("keys is a list, newest first: write [key], not the bare key")
        secrets = [_secret(position, key) for position, key in enumerate(keys)]
        if not secrets:
            raise ConfigurationError(f"a keyring needs a key; make one with: {_MAKE_ONE}")
        by_id: dict[bytes, bytes] = {}
        for position, secret in enumerate(secrets):
            if secret in secrets[:position]:
                raise ConfigurationError(
                    f"keys[{position}] is the same as keys[{secrets.index(secret)}]; name each key once, newest first"
                )
            if by_id.setdefault(self.key_id(secret), secret) is not secret:
                raise ConfigurationError(f"keys[{position}] has the same key id as another key; make it anew")
        fill = super().__setattr__
        fill("_by_id", by_id)
        fill("_macs", {key_id: _begin_mac(secret) for key_id, secret in by_id.items()})
        fill("signing_id", self.key_id(secrets[0]))

    @staticmethod
    def key_id(key: str | bytes) -> bytes:
        """Return the public id of a key, which reveals nothing about the key."""
        secret = key.encode() if isinstance(key, str) else bytes(key)
        return hmac.digest(secret, _ID_DOMAIN, "sha256")[:KEY_ID_BYTES]

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The ids of all keys, newest first."""
        return tuple(self._by_id)

    def sign(self, key_id: bytes, parts: Iterable[bytes]) -> bytes | None:
        """Return the HMAC-SHA-256 of a message, given in parts, by the key with this id; None if no key has it."""
        begun = self._macs.get(key_id)
        if begun is None:
            return None
        inner, outer = begun[0].copy(), begun[1].copy()
        inner.update(b"".join(parts))
        outer.update(inner.digest())
        signature: bytes = outer.digest()
        return signature

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a keyring is immutable; make another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a keyring is immutable; make another one")

    def __reduce__(self) -> tuple[Any, ...]:
        return Keyring, (list(self._by_id.values()),)

    def __repr__(self) -> str:
        return f"<Keyring of {', '.join(key_id.hex() for key_id in self._by_id)}>"


def _begin_mac(secret: bytes) -> tuple[Any, Any]:
    """Return the two hashes that an HMAC continues from (RFC 2104).

    hmac.digest releases the GIL at every call, and waits milliseconds to get it back if other threads work. Continuing
    these two hashes does not release it for short messages.
    """
    block = (hashlib.sha256(secret).digest() if len(secret) > _SHA256_BLOCK_BYTES else secret).ljust(
        _SHA256_BLOCK_BYTES, b"\0"
    )
    return hashlib.sha256(bytes(byte ^ 0x36 for byte in block)), hashlib.sha256(bytes(byte ^ 0x5C for byte in block))


def _secret(position: int, key: str | bytes) -> bytes:
    if not isinstance(key, str | bytes):
        raise ConfigurationError(f"keys[{position}] is text or bytes, not {type(key).__name__}")
    if isinstance(key, str) and key != key.strip():
        # One machine may read the key from a file, another from the environment, and only one of them may strip it.
        raise ConfigurationError(f"keys[{position}] starts or ends with white space; strip it, also where it is stored")
    secret = key.encode() if isinstance(key, str) else key
    if not secret:
        raise ConfigurationError(f"keys[{position}] is empty; make a key with: {_MAKE_ONE}")
    if len(secret) < MIN_KEY_BYTES:
        raise ConfigurationError(
            f"keys[{position}] has {len(secret)} bytes, but a key needs at least {MIN_KEY_BYTES};"
            f" make one with: {_MAKE_ONE}"
        )
    return secret
