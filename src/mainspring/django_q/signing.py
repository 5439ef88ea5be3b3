"""django-q's `SignedPackage` by its usual path: signed text, of plain data instead of pickles."""

from __future__ import annotations

from typing import Any

from django.core.signing import BadSignature

from mainspring.django.importing.packages import pack_text, unpack_text

__all__ = ["BadSignature", "SignedPackage"]


class SignedPackage:
    """Signs plain data with the project's keys. Nothing is pickled."""

    @staticmethod
    def dumps(obj: Any, compressed: bool = False) -> str:
        """Return a value as signed text; a long one is always compressed."""
        return pack_text(obj)

    @staticmethod
    def loads(obj: str) -> Any:
        """Return the value of a signed text; raise BadSignature if no key of the project has signed it."""
        return unpack_text(obj)
