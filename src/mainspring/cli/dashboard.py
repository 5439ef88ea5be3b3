"""`mainspring dashboard`: serve the dashboard of an app or a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainspring.cli.common.failing import USAGE, CommandFailed
from mainspring.cli.common.output import echo
from mainspring.cli.common.target import opened, target_options
from mainspring.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.dashboard.serving import DashboardServer

__all__ = ["beside", "dashboard"]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=None, help="The port; by default 8300, or the next free."
)
@click.option("--host-name", "names", multiple=True, help="A name under which browsers reach it; may be repeated.")
@click.option("--users", type=click.Path(dir_okay=False, path_type=Path), envvar="MAINSPRING_DASHBOARD_USERS",
              help="A file with a line `NAME ROLE HASH` for each account.")  # fmt: skip
@click.option("--add-user", default=None, metavar="NAME", help="Ask for a password, write the account to --users, end.")
@click.option("--role", type=click.Choice(["view", "operate", "admin"]), default="operate", show_default=True,
              help="The role of --add-user.")  # fmt: skip
@click.option("--env", default="", help="A word beside the app's name; with `production` every action asks first.")
@target_options
def dashboard(
    host: str,
    port: int | None,
    names: tuple[str, ...],
    users: Path | None,
    add_user: str | None,
    role: str,
    env: str,
    where: str | None,
    name: str,
) -> None:
    """Serve the dashboard: see and steer runs, jobs, queues and nodes in a browser.

    Without --users it listens only on this machine, and whoever opens it may operate. Any other address needs accounts.

    \b
    Examples:
      mainspring dashboard --app shop.jobs:app
      mainspring dashboard --users users.txt --add-user ann --role admin
      mainspring dashboard --app redis://localhost/0 --host 0.0.0.0 --users users.txt --host-name jobs.example.org
    """
    if add_user is not None:
        return _add_user(users, add_user, role)
    _check_installed()
    from mainspring.dashboard import Accounts, DashboardApp
    from mainspring.dashboard.serving import DEFAULT_PORT, DashboardServer

    with opened(where, name, must_exist=False) as app:
        accounts = None if users is None else Accounts(file=users)
        app.load()
        hosts = [*names, *([] if host in ("0.0.0.0", "::") else [host])]
        served = DashboardApp(app, accounts=accounts, hosts=hosts, env=env)
        server = DashboardServer(served, host=host, port=DEFAULT_PORT if port is None else port, exact=bool(port))
        echo(f"The dashboard is at {server.url}; Ctrl-C ends it")
        server.run()
    return None


def _check_installed() -> None:
    try:
        import mainspring.dashboard.serving  # noqa: F401 - only to see whether its packages are there
    except (ConfigurationError, ImportError) as error:
        raise CommandFailed(
            f"the dashboard's packages are not installed: {error}", install_command("dashboard")
        ) from None


def _add_user(users: Path | None, name: str, role: str) -> None:
    """Write an account, or replace the one with this name."""
    from mainspring.dashboard.roles import hash_password

    if users is None:
        raise CommandFailed("say which file the account goes to: --users FILE", code=USAGE)
    if not name.strip() or len(name.split()) != 1 or name.startswith("#"):
        raise CommandFailed("a name has no spaces and does not begin with #", code=USAGE)
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if len(password) < 8:
        raise CommandFailed("a password has at least 8 characters", code=USAGE)
    lines = users.read_text(encoding="utf-8").splitlines() if users.exists() else []
    kept = [line for line in lines if line.split()[:1] != [name]]
    users.touch(mode=0o600)
    users.write_text("\n".join([*kept, f"{name} {role} {hash_password(password)}", ""]), encoding="utf-8")
    echo(f"{name} may {role}")


def beside(app: Mainspring) -> tuple[DashboardServer | None, str]:
    """Start the dashboard beside other work in this process; return it, and the line to print about it."""
    try:
        from mainspring.dashboard import DashboardApp
        from mainspring.dashboard.serving import DashboardServer

        server = DashboardServer(DashboardApp(app))
    except (ImportError, ConfigurationError) as error:
        if isinstance(error, ImportError) or "not installed" in str(error):
            return None, f"For a dashboard in the browser: {install_command('dashboard')}"
        return None, f"No dashboard: {error}"
    server.start()
    return server, f"The dashboard is at {server.url}"
