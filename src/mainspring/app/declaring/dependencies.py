"""Parameters that a worker provides: `def report(day: str, pool: Pool = Needs(open_pool))`.

The provider is a function. If it is a generator, the code after its `yield` runs when the run has ended. A provider
that `@app.resource` decorates is called once in each worker process instead of once for each run.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mainspring.app.declaring.annotations import hints_of
from mainspring.core.references import get_callable_name, iscoroutinefunction_partial, parameters_of
from mainspring.errors import ConfigurationError

if TYPE_CHECKING:
    from mainspring.app.declaring.lifespan import Lifespan

__all__ = ["Need", "Needs", "Provider", "enter", "enter_async", "find_provider", "inject", "opened", "uninjected"]

RESOURCE_MARK: Final = "__mainspring_resource__"
_UNINJECTED: Final = "__mainspring_uninjected__"


class Need:
    """Marks a parameter that a worker provides."""

    def __init__(self, provider: Callable[..., Any]) -> None:
        if not callable(provider):
            raise TypeError(f"Needs takes the function that provides the value, not {provider!r}")
        self.__dict__["provider"] = provider

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # copy, pickle and inspect ask for such names
            raise AttributeError(name)
        raise ConfigurationError(
            f"{self!r} was not provided: the function was called past its task; call the task, or pass the value"
        )

    def __repr__(self) -> str:
        return f"Needs({get_callable_name(self.__dict__['provider'])})"


def Needs(provider: Callable[..., Any]) -> Any:
    """Have a worker provide a parameter: as its default value, or as `Annotated[Pool, Needs(open_pool)]`."""
    return Need(provider)


class Provider:
    """A function that provides a value, and the providers that it needs itself."""

    __slots__ = ("func", "generates", "is_async", "is_resource", "needs")

    def __init__(self, func: Callable[..., Any], needs: Mapping[str, Provider]) -> None:
        self.func, self.needs = func, needs
        self.is_resource = hasattr(func, RESOURCE_MARK)
        self.generates = inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func)
        self.is_async: bool = (
            iscoroutinefunction_partial(func)
            or inspect.isasyncgenfunction(func)
            or any(each.is_async for each in needs.values())
        )

    @property
    def name(self) -> str:
        """The name of the function."""
        return get_callable_name(self.func)


def find_provider(func: Callable[..., Any], path: tuple[Callable[..., Any], ...] = ()) -> Provider:
    """Inspect a provider and the providers that it needs; raise ConfigurationError if one can never be called."""
    if func in path:
        circle = " -> ".join(map(get_callable_name, (*path[path.index(func) :], func)))
        raise ConfigurationError(f"these providers need each other: {circle}")
    needed = _needs_of(func)
    for name, parameter in parameters_of(func).items():
        fits = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if name not in needed and not fits:
            raise ConfigurationError(
                f"the provider {get_callable_name(func)} has a parameter {name!r} that nothing provides: give it a "
                f"default value, or write {name}=Needs(...)"
            )
    found = Provider(func, {name: find_provider(need, (*path, func)) for name, need in needed.items()})
    for each in found.needs.values():
        if found.is_resource and not each.is_resource:
            raise ConfigurationError(
                f"the resource {found.name} lives as long as its worker, and needs {each.name}, which lives as long "
                "as a run: make that a resource, too"
            )
        if each.is_async and not (iscoroutinefunction_partial(func) or inspect.isasyncgenfunction(func)):
            raise ConfigurationError(f"{found.name} is not a coroutine function, and needs {each.name}, which is one")
    return found


def inject(func: Callable[..., Any], lifespan: Lifespan) -> Callable[..., Any]:
    """Return a function that provides its needs itself; return `func` unchanged if it needs nothing.

    The signature of the new function leaves the needs out. A caller, such as a test, may still pass them.
    """
    needed = _needs_of(func)
    if not needed:
        return func
    _check_places(func, needed)
    providers = {name: find_provider(provider) for name, provider in needed.items()}
    lifespan.add(providers.values())
    is_async = iscoroutinefunction_partial(func)
    for name, provider in providers.items():
        if provider.is_async and not is_async:
            raise ConfigurationError(
                f"{get_callable_name(func)} is not a coroutine function and cannot wait for {name!r}, which "
                f"{provider.name} provides: make the task `async def`, or the provider `def`"
            )
    made = _async_call(func, providers, lifespan) if is_async else _plain_call(func, providers, lifespan)
    signature = inspect.signature(func)
    visible = [each for name, each in signature.parameters.items() if name not in needed]
    made.__signature__ = signature.replace(parameters=visible)  # type: ignore[attr-defined]
    setattr(made, _UNINJECTED, func)
    return made


def uninjected(func: Any) -> Any:
    """Return the function inside the result of `inject`; return any other function unchanged."""
    return getattr(func, _UNINJECTED, func)


def _plain_call(func: Callable[..., Any], providers: Mapping[str, Provider], lifespan: Lifespan) -> Callable[..., Any]:
    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            known: dict[Any, Any] = {}
            for name, provider in providers.items():
                if name not in kwargs:
                    kwargs[name] = enter(provider, stack, known, lifespan)
            return func(*args, **kwargs)

    return call


def _async_call(func: Callable[..., Any], providers: Mapping[str, Provider], lifespan: Lifespan) -> Callable[..., Any]:
    @wraps(func)
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with AsyncExitStack() as stack:
            known: dict[Any, Any] = {}
            for name, provider in providers.items():
                if name not in kwargs:
                    kwargs[name] = await enter_async(provider, stack, known, lifespan)
            return await func(*args, **kwargs)

    return call


def enter(provider: Provider, stack: ExitStack, known: dict[Any, Any], lifespan: Lifespan | None) -> Any:
    """Return the value of a provider, made once per run; `stack` closes it. The lifespan owns resources."""
    if provider.func in known:
        return known[provider.func]
    if provider.is_resource and lifespan is not None:
        value = lifespan.get(provider)
    else:
        needs = {name: enter(each, stack, known, lifespan) for name, each in provider.needs.items()}
        value = opened(provider, stack, needs)
    known[provider.func] = value
    return value


def opened(provider: Provider, stack: ExitStack, needs: Mapping[str, Any]) -> Any:
    """Call a provider with its needs; `stack` closes its value."""
    if provider.generates:
        return stack.enter_context(contextmanager(provider.func)(**needs))
    return provider.func(**needs)


async def enter_async(
    provider: Provider, stack: AsyncExitStack, known: dict[Any, Any], lifespan: Lifespan | None
) -> Any:
    """Do the same as `enter`, on this event loop."""
    if provider.func in known:
        return known[provider.func]
    if not provider.is_async:
        plain = stack.enter_context(ExitStack())
        return enter(provider, plain, known, lifespan)
    if provider.is_resource and lifespan is not None and lifespan.holds(provider):
        value = lifespan.get(provider)
    else:  # this includes a resource of another loop: inline mode, for example, has a loop for each run
        needs = {name: await enter_async(each, stack, known, lifespan) for name, each in provider.needs.items()}
        if inspect.isasyncgenfunction(provider.func):
            value = await stack.enter_async_context(asynccontextmanager(provider.func)(**needs))
        else:
            value = await provider.func(**needs)
    known[provider.func] = value
    return value


def _needs_of(func: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return the providers of the parameters that `Needs` marks."""
    parameters = parameters_of(func)
    marked = {name: each.default for name, each in parameters.items() if isinstance(each.default, Need)}
    for name, hint in hints_of(func).items():
        if name not in parameters:
            continue
        if typing.get_origin(hint) is typing.Annotated:
            for each in hint.__metadata__:
                if isinstance(each, Need):
                    marked[name] = each
        elif isinstance(hint, str) and "Needs(" in hint:
            raise ConfigurationError(
                f"the annotation {hint!r} of {get_callable_name(func)} cannot be evaluated here: its names must be "
                "known in the module, not only to type checkers"
            )
    return {name: need.__dict__["provider"] for name, need in marked.items()}


def _check_places(func: Callable[..., Any], needed: Mapping[str, Any]) -> None:
    """Raise unless callers can pass positional arguments without knowing about the needs."""
    seen: str | None = None
    for name, each in inspect.signature(func).parameters.items():
        if name in needed:
            seen = seen or name
            if each.kind is each.POSITIONAL_ONLY:
                raise ConfigurationError(f"{get_callable_name(func)} takes {name!r} by position only; remove the /")
        elif seen and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL):
            raise ConfigurationError(
                f"{get_callable_name(func)} has {seen!r}, which a worker provides, before {name!r}: put it last"
            )
