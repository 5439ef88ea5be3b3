"""Turn callables into references and back, name them for people, and check that arguments fit."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from mainspring.errors import CallableReferenceError, near

__all__ = [
    "check_callable_args",
    "complaint_about",
    "get_callable_name",
    "iscoroutinefunction_partial",
    "maybe_ref",
    "module_of",
    "obj_to_ref",
    "parameters_of",
    "portable_call",
    "ref_to_obj",
    "variable_of",
]

MOST_IMPORTED: Final = 1000
_imported: Final[dict[str, tuple[str, Any, str]]] = {}
"""The place to which each reference led: the name of the module, the module, and the name in it."""

SHOWN_DEFAULT_CHARS: Final = 40
"""The longest default of a parameter that messages show."""


def get_callable_name(func: Callable[..., Any]) -> str:
    """Return the best name to show for a callable."""
    if isinstance(func, partial):
        return f"partial({get_callable_name(func.func)})"
    owner = getattr(func, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        cls = owner if inspect.isclass(owner) else type(owner)
        return f"{cls.__qualname__}.{getattr(func, '__name__', type(func).__name__)}"
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None)
    if name:
        return str(name)
    if callable(func):
        return type(func).__qualname__
    raise TypeError(f"{func!r} is not callable")


def parameters_of(func: Callable[..., Any] | None) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a callable by name; an empty mapping if they are unknown, as for some built-ins."""
    try:
        return {} if func is None else inspect.signature(func).parameters
    except (TypeError, ValueError):
        return {}


def module_of(obj: Any) -> str:
    """Return the name of the module that defines `obj`; for the main program, the name by which others import it."""
    module = getattr(obj, "__module__", None) or type(obj).__module__
    return main_name() if module in ("__main__", "__mp_main__") else str(module)


def main_name() -> str:
    """Return the name by which other processes can import the main program; `__main__` if it is not a file."""
    main = sys.modules.get("__main__")
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return _stem(path) if path else "__main__"


@lru_cache(8)
def _stem(path: str) -> str:
    """Return the name of a file without its ending; cached, because each run asks for that of the main program."""
    return Path(path).stem


def obj_to_ref(obj: Callable[..., Any]) -> str:
    """Return the reference `package.module:qualified.name` by which `obj` can be imported."""
    if isinstance(obj, partial):
        raise CallableReferenceError(f"a partial has no name to import: {obj!r}; name a function of a module instead")
    name = get_callable_name(obj)
    if "<lambda>" in name:
        raise CallableReferenceError("a lambda has no name to import; define a function in a module instead")
    if "<locals>" in name:
        raise CallableReferenceError(
            f"{name!r} is nested in a function and has no name to import; move it to its module"
        )
    owner = getattr(obj, "__self__", None)
    if inspect.ismethod(obj) and not inspect.isclass(owner):
        # A bound method is stored as the plain function, with its object as the first argument.
        obj = obj.__func__
    ref = f"{module_of(obj)}:{name}"
    found = ref_to_obj(ref)
    if found != obj and getattr(found, "__func__", None) is not getattr(obj, "__func__", obj):
        raise CallableReferenceError(f"{ref!r} leads to {found!r}, not to {obj!r}; give the function a name of its own")
    return ref


def variable_of(obj: Any) -> str | None:
    """Return the module variable that holds an object, as `module:name`, so that other processes can import it."""
    # Search the main program last: other processes that import it do not execute the code under its __main__ guard.
    for name, module in sorted(sys.modules.copy().items(), key=lambda item: item[0] == "__main__"):
        if name == "__mp_main__":
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is obj:
                return f"{name}:{attribute}"
    return None


def portable_call(func: Callable[..., Any] | str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return a call as a reference and arguments; a bound method becomes its function, with its object as argument."""
    if isinstance(func, str):
        return func, args
    owner = getattr(func, "__self__", None)
    bound = inspect.ismethod(func) and not inspect.isclass(owner)
    return obj_to_ref(func), (owner, *args) if bound else args


def ref_to_obj(ref: str) -> Any:
    """Import the object that `package.module:qualified.name` names."""
    if not isinstance(ref, str):
        raise TypeError(f"a reference is text, not {type(ref).__name__}")
    if ref in _imported:  # a scheduler looks up the function of each run, and the import system would be most of that
        module_name, module, name = _imported[ref]
        if sys.modules.get(module_name) is module and hasattr(module, name):
            return getattr(module, name)
    module_name, colon, path = ref.partition(":")
    if not colon or not module_name or not path:
        raise CallableReferenceError(f"{ref!r} is not a reference; write it as 'package.module:name'")
    try:
        module = obj = _module(module_name)
    except ImportError as error:
        raise LookupError(f"cannot import {module_name!r} of the reference {ref!r}: {error}") from error
    for part in path.split("."):
        try:
            obj = getattr(obj, part)
        except AttributeError:
            hint = near(part, [name for name in dir(obj) if not name.startswith("_")])
            raise LookupError(f"{ref!r} leads nowhere: {part!r} is not in {_shown(obj)}{hint}") from None
    if "." not in path:
        if len(_imported) >= MOST_IMPORTED:
            _imported.clear()
        _imported[ref] = getattr(module, "__name__", module_name), module, path
    return obj


def loaded(ref: str) -> Any:
    """Return the object that a reference names if its module is already imported, else None."""
    module_name, _, path = ref.partition(":")
    obj: Any = sys.modules.get(module_name)
    for part in path.split("."):
        obj = getattr(obj, part, None)
    return obj


def _module(name: str) -> Any:
    main, program = main_name(), sys.modules["__main__"]
    if main.partition(".")[0] == "mainspring":
        if name == "__main__":
            raise ImportError("it was the main program of another process; define the function in a module of its own")
    elif name in (main, "__main__"):
        known = sys.modules.get(name, program)
        if getattr(known, "__file__", None) == getattr(program, "__file__", None):
            return program  # importing it by its name would execute it again
    return importlib.import_module(name)


def _shown(obj: Any) -> str:
    return f"module {obj.__name__!r}" if inspect.ismodule(obj) else repr(getattr(obj, "__qualname__", obj))


def maybe_ref(ref: Any) -> Any:
    """Import the object that a text refers to; return any other value unchanged."""
    return ref_to_obj(ref) if isinstance(ref, str) else ref


def iscoroutinefunction_partial(func: Any) -> bool:
    """Return True if calling `func`, or the function inside its partials, gives a coroutine."""
    while isinstance(func, partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def check_callable_args(func: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise ValueError if `func` cannot be called with these arguments."""
    positional = len(args) if isinstance(args, (tuple, list)) else len(list(args))
    try:
        complaint = complaint_about(func, positional, tuple(kwargs))
    except TypeError:  # not hashable, so skip the cache
        complaint = complaint_about.__wrapped__(func, positional, tuple(kwargs))
    if complaint:
        raise ValueError(complaint)


@lru_cache(maxsize=1024)
def complaint_about(func: Callable[..., Any], positional: int, names: tuple[str, ...]) -> str:
    """Return the problem with a call of this shape, whatever the values are; an empty text if it fits."""
    try:
        signature = inspect.signature(func, follow_wrapped=False)
    except (ValueError, TypeError):
        return ""  # some built-ins have no signature
    parameters = signature.parameters.values()
    takes = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    any_args = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    any_kwargs = any(p.kind is p.VAR_KEYWORD for p in parameters)
    shown = f"{get_callable_name(func)}{_shortened(signature)}"
    if positional > len(takes) and not any_args:
        most, one = len(takes), positional == 1
        return (
            f"{shown} takes {most} positional argument{'' if most == 1 else 's'} "
            f"but {positional} {'is' if one else 'are'} given"
        )
    twice = [p.name for p in takes[:positional] if p.name in names and p.kind is not p.POSITIONAL_ONLY]
    if twice:
        return f"{shown} is given {', '.join(twice)} twice, in args and in kwargs"
    unknown = [name for name in names if name not in by_name]
    if unknown and not any_kwargs:
        return f"{shown} takes no argument {unknown[0]!r}{near(unknown[0], by_name)}"
    left = [p for p in takes[positional:] if p.kind is p.POSITIONAL_ONLY or p.name not in names]
    left += [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in names]
    missing = [p.name for p in left if p.default is p.empty]
    if missing:
        return f"{shown} also needs {', '.join(map(repr, missing))}"
    return ""


def _shortened(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature to show: without the result, and without defaults that are long or may hold secrets."""
    shown = [
        p.replace(default=_Ellipsis()) if p.default is not p.empty and len(repr(p.default)) > SHOWN_DEFAULT_CHARS else p
        for p in signature.parameters.values()
    ]
    return signature.replace(parameters=shown, return_annotation=signature.empty)


class _Ellipsis:
    """Stands for a default that is not shown."""

    def __repr__(self) -> str:
        return "..."
