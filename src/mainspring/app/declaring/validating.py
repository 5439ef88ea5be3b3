"""Check the arguments of a call against the annotations of its task when it is enqueued, where the mistake is made.

Pydantic checks annotations that are pydantic models or contain one. msgspec checks the others, and does not convert
between texts and numbers. A dict becomes the model, dataclass or struct that the annotation names.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.app.declaring.annotations import hints_of
from mainspring.codec.layouts import is_model
from mainspring.core.references import get_callable_name, parameters_of
from mainspring.core.waiting.placeholders import placeholders_in
from mainspring.errors import ConfigurationError, InvalidArguments

if TYPE_CHECKING:
    from mainspring.codec import TypeBook

__all__ = ["Validator", "make_validator"]

Check = Callable[[Any], Any]
"""A function that returns the value to store, or raises _ArgumentErrors."""


class _ArgumentErrors(Exception):
    """The mistakes in one argument: the paths inside it, and texts that do not show its values."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        super().__init__(found)
        self.found = found


class Validator:
    """Checks the arguments of calls of one function."""

    def __init__(self, func: Callable[..., Any], checks: Mapping[str, Check]) -> None:
        self._func, self._checks = func, checks
        parameters = inspect.signature(func).parameters.values()
        self._positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._others = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    def __call__(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments converted to their annotations; raise InvalidArguments, which names all misfits."""
        problems: list[tuple[str, str]] = []
        made = [
            self._checked(
                name, f"{name}[{number - len(self._positional)}]" if name == self._rest else name, value, problems
            )
            for number, (name, value) in enumerate(zip(self._names(), args, strict=False))
        ]
        named = {
            name: self._checked(name if name in self._named else self._others, name, value, problems)
            for name, value in kwargs.items()
        }
        if problems:
            raise InvalidArguments(get_callable_name(self._func), tuple(problems))
        return tuple(made), named

    def _names(self) -> Iterator[str | None]:
        yield from self._positional
        while True:
            yield self._rest

    def _checked(self, parameter: str | None, shown: str | None, value: Any, problems: list[tuple[str, str]]) -> Any:
        check = None if parameter is None else self._checks.get(parameter)
        if check is None or placeholders_in((value,), {}):  # the result of another run is not known yet
            return value
        try:
            return check(value)
        except _ArgumentErrors as error:
            problems += ((f"{shown}{path}", text) for path, text in error.found)
            return value


def make_validator(func: Callable[..., Any], validate: bool | None, types: TypeBook) -> Validator | None:
    """Return the validator of a function's arguments; None if it needs none.

    This registers the types in the checked annotations, so they can be stored without a key: the code expects them.
    """
    if validate is False:
        return None
    parameters = parameters_of(func)
    checks: dict[str, Check] = {}
    for name, hint in hints_of(func).items():
        if name not in parameters or hint is Any:
            continue
        models = any(map(is_model, _classes(hint)))
        if isinstance(hint, str):
            if validate:
                raise ConfigurationError(
                    f"validate=True: the annotation {hint!r} of {name!r} of {get_callable_name(func)} cannot be "
                    "evaluated here; its names must be known in the module, not only to type checkers"
                )
        elif models or validate:
            checks[name] = _pydantic_check(hint) if models else _msgspec_check(hint)
            for cls in _classes(hint):
                with suppress(ConfigurationError):  # the type cannot be stored by its fields
                    types.register(cls)
    return Validator(func, checks) if checks else None


def _classes(hint: Any, seen: set[Any] | None = None) -> Iterator[type]:
    """Yield the user's types in an annotation, including the types of a model's fields."""
    seen = set() if seen is None else seen
    for part in typing.get_args(hint):
        yield from _classes(part, seen)
    if not isinstance(hint, type) or hint.__module__ == "builtins" or hint in seen:
        return
    seen.add(hint)
    if is_model(hint) or issubclass(hint, Enum) or hasattr(hint, "__dataclass_fields__"):
        yield hint
    if is_model(hint):
        for field in hint.model_fields.values():
            yield from _classes(field.annotation, seen)


def _pydantic_check(hint: Any) -> Check:
    pydantic: Any = sys.modules["pydantic"]
    adapter = pydantic.TypeAdapter(hint)

    def check(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise _ArgumentErrors([(_path(each["loc"]), each["msg"]) for each in found]) from None

    return check


def _path(places: Iterable[str | int]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in places)


def _msgspec_check(hint: Any) -> Check:
    cls = hint if isinstance(hint, type) else None

    def check(value: Any) -> Any:
        if cls is not None and type(value) is cls:
            return value
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            raise _ArgumentErrors([(path.rstrip("`"), text)]) from None
        except (TypeError, RecursionError):  # msgspec does not support this type
            if cls is None or isinstance(value, cls):
                return value
            raise _ArgumentErrors([("", f"Expected `{cls.__qualname__}`, got `{type(value).__qualname__}`")]) from None

    return check
