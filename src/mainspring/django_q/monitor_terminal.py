"""django-q's functions for the terminal by their usual path: each is a command of `manage.py`."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command

from mainspring.django_q.status import Stat

__all__ = ["get_ids", "info", "memory", "monitor"]


def monitor(run_once: bool = False, broker: Any = None) -> list[Stat]:
    """Do what `manage.py qmonitor` does; return the running clusters."""
    call_command("qmonitor", run_once=run_once)
    return Stat.get_all()


def info(broker: Any = None) -> None:
    """Do what `manage.py qinfo` does."""
    call_command("qinfo")


def memory(run_once: bool = False, workers: bool = False, broker: Any = None) -> None:
    """Do what `manage.py qmemory` does."""
    call_command("qmemory", run_once=run_once, workers=workers)


def get_ids() -> bool:
    """Do what `manage.py qinfo --ids` does."""
    call_command("qinfo", ids=True)
    return True
