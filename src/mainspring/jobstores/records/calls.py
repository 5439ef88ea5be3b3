"""Turn the call of a job or run into plain data and back, and phrase errors in terms of the caller's arguments."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Final

from mainspring.codec import EncodeError
from mainspring.core.job import Job
from mainspring.core.policy import DEFAULT_POLICY, Policy, policy_from_data, policy_to_data
from mainspring.core.references import obj_to_ref, portable_call
from mainspring.core.run import Call
from mainspring.errors import CallableReferenceError, TransientJobError
from mainspring.triggers import trigger_from_data

__all__ = ["call_from_data", "call_to_data", "in_call", "overridden_from_data", "overridden_to_data"]

_KEYS: Final = {"a": "args", "k": "kwargs", "n": "name", "p": "policy", "t": "trigger"}
_TOP: Final = re.compile(r"(\w*)(\[\d+\]|\.\w+|)(.*)", re.DOTALL)
"""A path in the result of `call_to_data`: the key, the next step, the rest."""
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_to_data(call: Call, policy: Policy, job_id: str) -> dict[str, Any]:
    """Return a call and its policy as plain data."""
    ref, args = call.func, call.args
    if not isinstance(ref, str):
        try:
            ref, args = portable_call(ref, args)
        except (CallableReferenceError, LookupError) as error:
            raise TransientJobError(job_id, str(error)) from error
    data: dict[str, Any] = {"f": ref, "a": list(args), "k": dict(call.kwargs), "n": call.name}
    if call.inputs:
        data["i"] = call.inputs
    if call.headers:
        data["e"] = dict(call.headers)
    if policy != DEFAULT_POLICY:
        data["p"] = policy_to_data(policy, partial(_reference, job_id=job_id))
    return data


def in_call(error: EncodeError, ref: str) -> EncodeError:
    """Return the error in terms of the caller: with parameter names instead of the keys of `call_to_data`."""
    key, step, rest = _TOP.fullmatch(error.path).groups()  # type: ignore[union-attr]
    if key == "a" and step.startswith("["):
        path = (_parameter(ref, int(step[1:-1])) or f"args{step}") + rest
    elif key == "k" and step.startswith("."):
        path = step[1:] + rest
    else:
        path = _KEYS.get(key, key) + step + rest
    return EncodeError(path, error.kind, f"in the call of {ref} {error.problem}")


def _parameter(ref: str, number: int) -> str | None:
    """Return the name of a positional parameter if the function is loaded; import nothing for it."""
    module, _, qualified = ref.partition(":")
    try:
        func = attrgetter(qualified)(sys.modules[module])
        parameters = [*inspect.signature(func).parameters.values()]
    except Exception:  # each of these may call the user's code
        return None
    named = parameters[number : number + 1]
    return named[0].name if named and named[0].kind in _POSITIONAL else None


def call_from_data(data: dict[str, Any], frame: bytes) -> tuple[Call, Policy]:
    """Return the call and the policy from the result of `call_to_data`; `frame` holds the bytes it was read from."""
    policy = policy_from_data(data["p"]) if "p" in data else DEFAULT_POLICY
    headers = _headers(data["e"]) if "e" in data else None
    call = Call(data["f"], tuple(data["a"]), data["k"], data["n"], frame, None, data.get("i", 0), headers)
    return call, policy


def _headers(found: Any) -> dict[str, str] | None:
    """Return the headers of a call; None if they were altered in an unsigned record."""
    if isinstance(found, dict) and all(isinstance(text, str) for pair in found.items() for text in pair):
        return found
    return None


def overridden_to_data(job: Job) -> dict[str, Any]:
    """Return the declared values of the fields of a job that were changed by hand, as plain data."""
    data = dict(job.overridden)
    if "trigger" in data:
        data["trigger"] = data["trigger"].to_data()
    if "call" in data:
        data["call"] = call_to_data(data["call"], DEFAULT_POLICY, job.id)
    if "policy" in data:
        data["policy"] = policy_to_data(data["policy"], partial(_reference, job_id=job.id))
    return data


def overridden_from_data(data: dict[str, Any]) -> dict[str, Any]:
    """Reverse `overridden_to_data`."""
    found = dict(data)
    if "trigger" in found:
        found["trigger"] = trigger_from_data(found["trigger"])
    if "call" in found:
        call = found["call"]
        found["call"] = Call(call["f"], tuple(call["a"]), call["k"], call["n"])
    if "policy" in found:
        found["policy"] = policy_from_data(found["policy"])
    return found


def _reference(obj: Callable[..., Any], job_id: str) -> str:
    try:
        return obj_to_ref(obj)
    except (CallableReferenceError, LookupError) as error:
        raise TransientJobError(job_id, str(error)) from error
