"""End a verb with a sentence, the next command to try, and an exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from mainspring.cli.common.visible import visible
from mainspring.core.showing.redaction import without_password
from mainspring.errors import MainspringError

__all__ = ["FAILED", "UNREACHABLE", "USAGE", "CommandFailed", "command", "own_help", "own_words", "usage_errors"]

FAILED: Final = 1
"""Exit code: the command failed, or found nothing."""
USAGE: Final = 2
UNREACHABLE: Final = 3
"""Exit code: the store does not answer."""


class CommandFailed(click.ClickException):
    """An error that ends a command with a sentence, the next command to try, and an exit code."""

    def __init__(self, message: str, try_next: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.try_next = try_next or (own_help() if code == USAGE else "")
        self.__dict__["exit_code"] = code  # click types it as a class attribute

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"Error: {_visible_lines(self.message)}", file=file, err=file is None)
        if self.try_next:
            click.echo(f"Try: {_visible_lines(self.try_next)}", file=file, err=file is None)


@contextmanager
def usage_errors(try_next: str = "", kinds: tuple[type[Exception], ...] = (TypeError, ValueError)) -> Iterator[None]:
    """Turn errors of these kinds into usage errors; let mainspring's errors pass."""
    try:
        yield
    except kinds as error:
        if isinstance(error, OSError | MainspringError):
            raise
        raise CommandFailed(str(error), try_next, USAGE) from None


def own_help() -> str:
    """Return the help command for the current command; empty outside a command."""
    words = own_words()
    return f"{words} -h" if words != "mainspring" else ""


def own_words() -> str:
    """Return the words of the current command, without its options."""
    context, words = click.get_current_context(silent=True), list[str]()
    while context is not None and context.parent is not None:
        words.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(["mainspring", *words])


def _visible_lines(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())


def command(words: str) -> str:
    """Return a mainspring command to try next, with the target of the current one."""
    context = click.get_current_context(silent=True)
    where = None if context is None else context.params.get("where") or context.params.get("file")
    if where is None or without_password(where) != where:
        return f"mainspring {words}"
    return f"mainspring {words} --app {shlex.quote(where)}"
