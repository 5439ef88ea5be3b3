"""django-q's terminal functions under their usual path: each is a command of `manage.py`."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command

from mainspring.django_q.status import Stat

__all__ = ["get_ids", "info", "memory", "monitor"]


def monitor(run_once: bool = False, broker: Any = None) -> list[Stat]:
    """Run `manage.py qmonitor`; return the running clusters."""
    call_command("qmonitor", run_once=run_once)
    return Stat.get_all()


def info(broker: Any = None) -> None:
    """Run `manage.py qinfo`."""
    call_command("qinfo")


def memory(run_once: bool = False, workers: bool = False, broker: Any = None) -> None:
    """Run `manage.py qmemory`."""
    call_command("qmemory", run_once=run_once, workers=workers)


def get_ids() -> bool:
    """Run `manage.py qinfo --ids`."""
    call_command("qinfo", ids=True)
    return True
