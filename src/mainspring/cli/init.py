"""`mainspring init`: a small app to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from mainspring.cli.common.failing import USAGE, CommandFailed

__all__ = ["init"]

TEMPLATE: Final = """\
from mainspring import Mainspring

app = Mainspring("sqlite:///jobs.db")

@app.task(retries=3)
def send_mail(to: str) -> str:
    print("sending mail to", to)
    return f"sent to {to}"

@app.schedule("interval", seconds=3)  # or a crontab: @app.schedule("0 9 * * mon-fri", timezone="Europe/Berlin")
def greet() -> None:
    send_mail.enqueue("ann@example.com")
"""


@click.command()
@click.argument("file", default="app.py", type=click.Path(dir_okay=False, path_type=Path))
def init(file: Path) -> None:
    """Write a small app to FILE (app.py): one task, and one schedule that enqueues it.

    A file that is there is left as it is.

    \b
    Example:
      mainspring init
    """
    start = f"mainspring dev {shlex.quote(str(file))}"
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise CommandFailed(f"{str(file)!r} cannot be imported; name it like app.py", "mainspring init app.py", USAGE)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(TEMPLATE)
    except FileExistsError:
        raise CommandFailed(f"{str(file)!r} is there already and was left as it is", start) from None
    except OSError as error:
        raise CommandFailed(f"{str(file)!r} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {file}\nTry: {start}")
