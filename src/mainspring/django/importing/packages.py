"""Plain data as signed text, in the manner of django-q's `SignedPackage`."""

from __future__ import annotations

from typing import Any, Final

from django.core.signing import BadSignature, b64_decode, b64_encode

from mainspring.codec.errors import FrameError
from mainspring.django.application import app

__all__ = ["pack_text", "unpack_text"]

CONTEXT: Final = "package"


def pack_text(value: Any) -> str:
    """Return a value as text, signed with the project's keys."""
    return str(b64_encode(app.codec.dumps(value, CONTEXT)).decode())


def unpack_text(text: str) -> Any:
    """Return the value in a signed text; raise BadSignature if no key of the project signed it."""
    try:
        return app.codec.loads(b64_decode(text.encode()), CONTEXT)
    except (FrameError, ValueError) as error:
        raise BadSignature(str(error)) from error
