"""The verbs of django-q's `Task`: its group, its result, and storing an ended task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mainspring import tasks
from mainspring.core.run import FINAL, Status
from mainspring.django.importing.ended import ended_run
from mainspring.django.schedules.writing import project_app

__all__ = ["ENDED", "TaskVerbs"]

ENDED: Final = tuple(status.value for status in Status if status in FINAL)


class TaskVerbs:
    """django-q's verbs for a task."""

    @classmethod
    def store_new(cls, values: Mapping[str, Any]) -> str:
        """Store an ended run, given django-q's fields; return its id."""
        app, run = project_app(), ended_run(values)
        app.store.add_runs([app.store.pack_run(run)])
        return run.id

    @classmethod
    def get_task(cls: Any, task_id: str) -> Any:
        """Return an ended task by id or name, or None."""
        ended = cls.objects.filter(status__in=ENDED)
        return ended.filter(pk=task_id).first() or ended.filter(name=task_id).order_by("-created").first()

    @classmethod
    def get_result(cls, task_id: str) -> Any:
        """Return the result of a task by id or name, or None."""
        found = cls.get_task(task_id)
        return None if found is None else found.result

    @classmethod
    def get_task_group(cls: Any, group_id: str, failures: bool = True) -> Any:
        """Return the ended tasks of a group as a query set."""
        found = cls.objects.filter(group=group_id, status__in=ENDED)
        return found if failures else found.filter(success=True)

    @staticmethod
    def get_result_group(group_id: str, failures: bool = False) -> list[Any]:
        """Return the results of a group."""
        return tasks.result_group(group_id, failures)

    @staticmethod
    def get_group_count(group_id: str, failures: bool = False) -> int:
        """Return the number of ended tasks in a group, or only of its failures."""
        return tasks.count_group(group_id, failures)

    @staticmethod
    def delete_group(group_id: str, objects: bool = True) -> int:
        """Delete the ended tasks of a group; return their number."""
        return tasks.delete_group(group_id, objects)

    def group_result(self: Any, failures: bool = False) -> list[Any] | None:
        """Return the results of this task's group."""
        return self.get_result_group(self.group, failures) if self.group else None

    def group_count(self: Any, failures: bool = False) -> int | None:
        """Return the number of ended tasks in this task's group, or only of its failures."""
        return self.get_group_count(self.group, failures) if self.group else None

    def group_delete(self: Any, tasks: bool = True) -> int | None:
        """Delete the ended tasks of this task's group; return their number."""
        return self.delete_group(self.group, tasks) if self.group else None
