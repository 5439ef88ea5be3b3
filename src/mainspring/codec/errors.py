"""The errors of packing and unpacking."""

from __future__ import annotations

from enum import StrEnum

from mainspring.errors import MainspringError

__all__ = ["EncodeError", "FrameError", "Reason"]


class Reason(StrEnum):
    """The reason for refusing a frame."""

    TRUNCATED = "truncated"
    TOO_LARGE = "too_large"
    UNKNOWN_VERSION = "unknown_version"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    BAD_DATA = "bad_data"
    NOT_ALLOWED = "not_allowed"
    MISSING_CODE = "missing_code"


class FrameError(MainspringError, ValueError):
    """Stored bytes were refused; `reason` says why. Nothing in them was executed."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = Reason(reason), text

    def __str__(self) -> str:
        return self.text


class EncodeError(MainspringError, TypeError, ValueError):
    """A value cannot be stored; `path` leads to it from the value that the caller passed, `kind` names its type."""

    def __init__(self, path: str, kind: str, problem: str) -> None:
        super().__init__(path, kind, problem)
        self.path, self.kind, self.problem = path, kind, problem

    def __str__(self) -> str:
        return f"{self.path or 'the value'} {self.problem}"
