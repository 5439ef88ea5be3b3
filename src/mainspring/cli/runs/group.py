"""The group of run verbs."""

from __future__ import annotations

import click

from mainspring.cli.common.verbs import VerbGroup

__all__ = ["runs"]


@click.group(cls=VerbGroup)
def runs() -> None:
    """Find runs, look at them, wait for them; send them back, run them again, cancel, change or delete them.

    \b
    FILTER is a list of conditions, all of which have to hold:
      status:failed,retrying   a comma means "or"
      task:send*  -queue:mail  a star leaves the end open, a minus means "not"
      since:1h  until:14:00    when the run was made
      took:>30s  wait:>5m  starts:>1  priority:>=10
      error:Timeout  text:"not found"  arg.user:42
      job:ID  group:NAME  node:NAME*  id:01f*

    \b
    Example:
      mainspring runs list status:failed queue:mail since:1h --app shop:app
    """
