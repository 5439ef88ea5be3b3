"""`mainspring tracker`: look into the tables of status trackers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainspring.cli.common.verbs import VerbGroup
from mainspring.core.showing.redaction import without_password
from mainspring.core.store_urls import SCHEMES, schemes_of, with_driver
from mainspring.errors import install_command, near

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

__all__ = ["tracker"]


@click.group(cls=VerbGroup)
def tracker() -> None:
    """Look into the tables of status trackers."""


@tracker.command()
@click.argument("url")
@click.argument("table")
@click.option("-n", "--locks", default=10, show_default=True, type=click.IntRange(0, 10_000), help="How many locks.")
def status(url: str, table: str, locks: int) -> None:
    """Count the jobs in TABLE by status, and show the oldest locks.

    URL is SQLAlchemy's, such as sqlite:///files.db; TABLE may be schema.table.

    \b
    Example:
      mainspring tracker status sqlite:///files.db step1_jobs
    """
    try:
        from sqlalchemy.exc import SQLAlchemyError

        from mainspring.tracker.report import report
    except ImportError as error:
        raise click.ClickException(f"{error}; {install_command('sqlalchemy')}") from None
    engine = _open(url)
    try:
        found = report(engine, table, locks)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    except SQLAlchemyError as error:
        raise click.ClickException(f"{without_password(url)}: {getattr(error, 'orig', None) or error}") from None
    finally:
        engine.dispose()
    click.echo(f"{'status':>10}  {'jobs':>10}")
    for code, count in found.counts.items():
        click.echo(f"{code:>10}  {count:>10}")
    if not found.counts:
        click.echo("no jobs")
    if found.locks:
        click.echo(f"\n{'locked for':>18}  {'status':>10}  job")
    for lock in found.locks:
        click.echo(f"{lock.age!s:>18}  {lock.status:>10}  {lock.id!r}")


def _open(url: str) -> Engine:
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except ArgumentError:  # even a malformed URL may contain a password, so do not show it
        raise click.ClickException("this is not a database URL; write it as sqlite:///files.db") from None
    dialect = parsed.get_backend_name()
    parsed = parsed.set(drivername=with_driver(parsed.drivername))
    file = parsed.database if dialect == "sqlite" else None
    if file and not file.startswith((":memory:", "file:")) and not Path(file).exists():
        raise click.ClickException(f"there is no file {file!r}")  # SQLite would create an empty one
    try:
        return create_engine(parsed)
    except ArgumentError:
        known = schemes_of("sqlalchemy")
        raise click.ClickException(f"no database is known for {dialect}://{near(dialect, known)}") from None
    except ImportError as error:
        ours = dialect in SCHEMES and parsed.drivername == with_driver(dialect)
        hint = f"; {install_command(SCHEMES[dialect].extra)}" if ours else ""
        raise click.ClickException(f"{dialect}:// needs a driver that is not installed: {error}{hint}") from None
