"""Find the app or store that a verb acts on, and open it."""

from __future__ import annotations

import functools
import importlib
import os
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, TypeVar

import click

import mainspring
from mainspring.cli.common import OUTPUT_ERRORS
from mainspring.cli.common.failing import UNREACHABLE, USAGE, CommandFailed, command, own_help, own_words
from mainspring.core.insight.wording import several
from mainspring.errors import ConfigurationError, MainspringError, StoreUnavailable

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = [
    "files_with_apps",
    "json_option",
    "load_app",
    "on_app",
    "on_new_app",
    "opened",
    "stacked",
    "target_of",
    "target_options",
    "why_option",
]

APP_VARIABLE: Final = "MAINSPRING_APP"
URL_VARIABLE: Final = "MAINSPRING_URL"

MOST_FILES_READ: Final = 100
"""The number of files to search for an app."""

_WHY: Final = "mainspring.why"

Callback = TypeVar("Callback", bound=Callable[..., Any])
R = TypeVar("R")


def stacked(*decorators: Callable[[Any], Any]) -> Callable[[Callback], Callback]:
    """Return one decorator in place of several; the help shows their options in this order."""

    def decorate(func: Callback) -> Callback:
        for decorator in reversed(decorators):
            func = decorator(func)
        return func

    return decorate


target_options: Final = stacked(
    click.option(
        "-a", "--app", "where", default=None, metavar="MODULE:APP|URL",
        help=f"The app, or its store's URL. By default ${APP_VARIABLE}, else ${URL_VARIABLE}.",
    ),
    click.option("--name", default="mainspring", show_default=True, help="The app's name, if --app is a URL."),
)  # fmt: skip
"""Adds the options that say which app or store a command acts on."""


def on_app(func: Callable[Concatenate[Mainspring, ...], R], *, may_be_new: bool = False) -> Callable[..., R]:
    """Add the options of `target_options`, and call the command with the opened app.

    An argument `target` of the command can name the app, too. With `may_be_new`, an app's database file may be missing
    before its first start; a URL without a file is probably misspelt.
    """

    @functools.wraps(func)
    def call(*, where: str | None, name: str, target: str | None = None, **options: Any) -> R:
        target = target_of(target or where)
        with opened(target, name, must_exist=not may_be_new or "://" in target) as app:
            return func(app, **options)

    return target_options(call)


on_new_app: Final = functools.partial(on_app, may_be_new=True)


def why_option(func: Callback) -> Callback:
    """Add the option to say why, for the audit log; `opened` passes it on."""

    def keep(context: click.Context, _: click.Parameter, why: str) -> None:
        context.meta[_WHY] = why

    return click.option("--why", default="", expose_value=False, callback=keep, help="Why, for the audit.")(func)


json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


def target_of(where: str | None) -> str:
    """Return the given app or URL, or else the one in the environment."""
    found = where or os.environ.get(APP_VARIABLE) or os.environ.get(URL_VARIABLE)
    if not found:
        raise CommandFailed(*_missing_target(), USAGE)
    return found


def _missing_target() -> tuple[str, str]:
    """Return the error about a missing app, and the next command to try: this one, with an app found here."""
    text = f"say which app or store: --app MODULE:APP or --app URL, or set {APP_VARIABLE} or {URL_VARIABLE}"
    apps = files_with_apps(Path.cwd())
    if not apps:
        return f"{text}; no .py file in this folder makes a Mainspring(...)", "mainspring init"
    first = shlex.quote(apps[0])
    found = f"{several(len(apps), 'file')} here with an app: {', '.join(apps[:3])}"
    return f"{text}; {found}", f"{own_words()} --app {first}"


def files_with_apps(folder: Path) -> list[str]:
    """Return the Python files of a folder that seem to make an app, without importing them; `app.py` comes first."""
    found = []
    for file in sorted(folder.glob("*.py"), key=lambda file: (file.name != "app.py", file.name))[:MOST_FILES_READ]:
        with suppress(OSError, ValueError):
            if "= Mainspring(" in file.read_text(encoding="utf-8"):
                found.append(file.name)
    return found


@contextmanager
def opened(
    where: str | None, name: str = "mainspring", *, must_exist: bool = True, needs_key: bool = True
) -> Iterator[Mainspring]:
    """Open an app, or an app over the store at a URL; end the command with a sentence and a code if that fails.

    With `must_exist`, a SQLite database must exist. With `needs_key`, an existing database must have its key: the first
    use would make another key, which verifies no stored record.
    """
    from mainspring.jobstores.opening import absent_file

    target = target_of(where)
    app = _app_at(target, name)
    try:
        context = click.get_current_context(silent=True)
        with app, app.acting(why="" if context is None else context.meta.get(_WHY, "")):
            if must_exist and (absent := absent_file(app.url)) is not None:
                raise CommandFailed(
                    f"there is no file {str(absent)!r}; correct the URL, or start the app once",
                    own_help() if "://" in target else f"mainspring dev {shlex.quote(target)}",
                )
            if needs_key and app.absent_key is not None:
                raise CommandFailed(
                    f"the database is there, and its key file {str(app.absent_key)!r} is not; put it back, or set "
                    "MAINSPRING_SECRET_KEY to the key of the app: no command makes another one",
                    command("doctor"),
                )
            yield app
    except StoreUnavailable as error:
        raise CommandFailed(_text(error), command("doctor"), UNREACHABLE) from error
    except MainspringError as error:
        raise CommandFailed(_text(error), own_help() if isinstance(error, ConfigurationError) else "") from error
    except BrokenPipeError:  # the reader has gone, as with `| head`
        raise
    except OSError as error:
        if error.errno in OUTPUT_ERRORS and error.filename is None:
            raise  # `main` reports it
        raise CommandFailed(_text(error), code=UNREACHABLE) from error


def _app_at(target: str, name: str) -> Mainspring:
    from mainspring.app import Mainspring
    from mainspring.app.loading.locating import without_lint

    try:
        with without_lint():  # `doctor`, `dev` and `worker` show the linter's findings
            return Mainspring(target, name=name) if "://" in target else load_app(target)
    except (MainspringError, OSError) as error:
        raise CommandFailed(_text(error), own_help()) from error


def load_app(target: str, include: Iterable[str] = ()) -> Mainspring:
    """Import an app; if a user's module raises, end the command with the user's frames."""
    from mainspring.app.loading.locating import find_app

    try:
        return find_app(target, include)
    except (MainspringError, OSError) as error:
        raise CommandFailed(_text(error), own_help()) from error
    except Exception as error:  # raised by the user's module
        raise CommandFailed(f"{target} cannot be imported:\n{_users_frames(error)}") from error


def _users_frames(error: Exception) -> str:
    """Return a traceback without our frames and those of the import system."""
    packages = [str(Path(package.__file__ or "").parent) for package in (mainspring, importlib)]
    own = (*packages, "<frozen importlib")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(own)]
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
