"""django-q's `SignedPackage` under its usual path: signed text that holds plain data instead of a pickle."""

from __future__ import annotations

from typing import Any

from django.core.signing import BadSignature

from mainspring.django.importing.packages import pack_text, unpack_text

__all__ = ["BadSignature", "SignedPackage"]


class SignedPackage:
    """A signer of plain data with the project's keys. It pickles nothing."""

    @staticmethod
    def dumps(obj: Any, compressed: bool = False) -> str:
        """Return a value as signed text; a long value is always compressed."""
        return pack_text(obj)

    @staticmethod
    def loads(obj: str) -> Any:
        """Return the value in a signed text; raise BadSignature if no key of the project signed it."""
        return unpack_text(obj)
