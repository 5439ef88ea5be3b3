"""The stored record of a failure: sqlalchemy_mate's two keys, and those of mainspring's own record."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, Final

from mainspring.core.run import MESSAGE_CHARS, TRACEBACK_CHARS, describe

__all__ = ["failure_records", "lost_records"]

SHORT_ERROR_CHARS: Final = 200
"""The number of characters of an error that a small column gets."""


def failure_records(exception: BaseException, attempt: int, stack_limit: int | None) -> Iterator[dict[str, Any] | None]:
    """Yield records of an exception, each smaller than the one before; at last None: leave the column unchanged."""
    error = describe(exception, 0, attempt)
    text = _limited(exception, stack_limit)
    full: dict[str, Any] = {
        "error": _clean(_repr(exception)),
        # This is still too long: use the kernel's form, which keeps the start and the end.
        "traceback": _clean(text if len(text) <= TRACEBACK_CHARS else error.traceback),
        "type": error.type,
        "message": _clean(error.message),
        "attempt": attempt,
    }
    yield full
    yield {"error": full["error"][:SHORT_ERROR_CHARS], "traceback": full["traceback"][-SHORT_ERROR_CHARS:]}
    yield {"error": error.type[: SHORT_ERROR_CHARS // 4], "traceback": ""}
    yield None


def lost_records(expire: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the record for a job whose holder vanished, and a smaller one."""
    message = f"the holder of the lock did not end the job, nor renew the lock, within {expire:g} s"
    full = {"error": f"LockExpired({message!r})", "traceback": "", "type": "LockExpired", "message": message}
    return full, {"error": "LockExpired", "traceback": ""}


def _limited(exception: BaseException, stack_limit: int | None) -> str:
    try:
        return "".join(traceback.format_exception(exception, limit=stack_limit))
    except BaseException as broken:
        return f"<the traceback could not be formatted: {type(broken).__name__}>"


def _repr(exception: BaseException) -> str:
    try:
        return repr(exception)[:MESSAGE_CHARS]
    except BaseException as broken:
        return f"{type(exception).__name__}(<its __repr__ raised {type(broken).__name__}>)"


def _clean(text: str) -> str:
    # PostgreSQL's jsonb accepts neither a NUL nor half a surrogate pair.
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
