"""Error reporters from the settings: ours by path, django-q's by entry point."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from inspect import isawaitable
from typing import Any, Final

from django.utils.module_loading import import_string

from mainspring.django.conf import Conf

__all__ = ["collected_errors", "report_errors"]

GROUP: Final = "djangoq.errorreporters"
"""The group of entry points for django-q's reporters: classes with a method `report`."""

log = logging.getLogger("mainspring.django")

Reporter = Callable[[Exception, Any], object]


_collected: ContextVar[list[Exception] | None] = ContextVar("mainspring_collected", default=None)


@contextmanager
def collected_errors() -> Iterator[list[Exception]]:
    """Collect the exceptions of tasks that this thread executes in this block."""
    errors: list[Exception] = []
    token = _collected.set(errors)
    try:
        yield errors
    finally:
        _collected.reset(token)


def report_errors(conf: Callable[[], Conf]) -> Callable[..., Any]:
    """Return middleware that passes failures to the reporters in the settings."""

    def tell(error: Exception, run: Any) -> None:
        errors = _collected.get()
        if errors is not None:
            errors.append(error)
        for report in _reporters(conf()):
            try:
                report(error, run)
            except Exception:
                log.exception("an error reporter failed")

    async def finish(value: Awaitable[Any], run: Any) -> Any:
        try:
            return await value
        except Exception as error:
            tell(error, run)
            raise

    def layer(run: Any, call_next: Callable[[], Any]) -> Any:
        try:
            value = call_next()
        except Exception as error:
            tell(error, run)
            raise
        return finish(value, run) if isawaitable(value) else value

    return layer


def _reporters(conf: Conf) -> tuple[Reporter, ...]:
    theirs = tuple((name, tuple(options.items())) for name, options in conf.error_reporter.items())
    return _loaded(conf.reporters, theirs)


@functools.cache
def _loaded(ours: tuple[str, ...], theirs: tuple[tuple[str, Any], ...]) -> tuple[Reporter, ...]:
    found: list[Reporter] = [import_string(path) for path in ours]
    known = {point.name: point for point in entry_points(group=GROUP)} if theirs else {}
    for name, options in theirs:
        if name in known:
            found.append(_without_arguments(known[name].load()(**dict(options)).report))
        else:
            log.error("Q_CLUSTER['error_reporter'] names %r, and no installed package has it", name)
    return tuple(found)


def _without_arguments(report: Callable[[], object]) -> Reporter:
    """Adapt a reporter of django-q's, which takes no arguments: it reads the exception being handled."""
    return lambda error, run: report()
