"""The four admin pages: scheduled, queued, successful and failed tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import display_for_value
from django.template.defaultfilters import truncatechars
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from mainspring.core.showing.redaction import masked
from mainspring.django.application import app
from mainspring.django.models import Failure, OrmQ, Schedule, Success, Task
from mainspring.django.schedules.jobs import job_id_of
from mainspring.django.schedules.rows import link_to
from mainspring.errors import MainspringError

__all__ = ["FailureAdmin", "QueueAdmin", "RunAdmin", "ScheduleAdmin", "SuccessAdmin"]

FRONT_PRIORITY = 100
SHOWN_CHARS = 5_000


def _each(model_admin: Any, request: Any, rows: Any, verb: str, act: Callable[[Any], object]) -> None:
    """Act on each chosen row as this user; report the number of rows and the errors."""
    done, wrong = 0, []
    with app.acting(by=request.user.get_username()):
        for row in rows:
            try:
                act(row)
                done += 1
            except (MainspringError, TypeError, ValueError, LookupError) as error:
                wrong.append(f"{row}: {error}")
    if done:
        model_admin.message_user(request, f"{done} {verb}", messages.SUCCESS)
    for text in wrong[:5]:
        model_admin.message_user(request, text, messages.ERROR)
    if len(wrong) > 5:
        model_admin.message_user(request, f"and {len(wrong) - 5} more", messages.ERROR)


def _lines(lines: Iterable[str]) -> Any:
    """Return lines unchanged, with long ones wrapped by the browser."""
    return format_html('<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{}</pre>', "\n".join(lines))


class RunAdmin(admin.ModelAdmin):
    """A page of runs to view and act on, but not to edit."""

    show_full_result_count = False
    list_per_page = 50
    search_fields = ("name", "func", "group")
    list_filter: ClassVar[tuple[str, ...]] = ("cluster",)
    ordering = ("-created", "-id")
    fields: ClassVar[tuple[str, ...]] = (
        *("id", "name", "func", "arguments", "shown_hook", "status", "group", "cluster", "priority", "attempt_count"),
        *("created", "run_at", "shown_start", "stopped", "node", "shown_result", "errors", "log"),
    )
    readonly_fields = fields

    def has_add_permission(self, request: Any) -> bool:
        """Return False: only code enqueues calls."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: a run cannot be edited. Actions check `has_act_permission`."""
        return False

    def has_act_permission(self, request: Any) -> bool:
        """Return True if the user may change runs with an action."""
        return bool(super().has_change_permission(request))

    def has_resubmit_permission(self, request: Any) -> bool:
        """Return True if the user may add runs."""
        return bool(super().has_add_permission(request))

    def delete_queryset(self, request: Any, queryset: Any) -> None:
        """Delete the runs through the store."""
        with app.acting(by=request.user.get_username()):
            queryset.delete()

    def delete_model(self, request: Any, obj: Any) -> None:
        """Delete the run through the store."""
        with app.acting(by=request.user.get_username()):
            obj.delete()

    @admin.display(description=_("Arguments"))
    def arguments(self, run: Any) -> str:
        """Return the arguments in source form, with likely secrets masked."""
        args, kwargs = masked(run.args, run.kwargs, app.tasks.function(run.func) or run.func)
        parts = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
        return str(truncatechars(", ".join(parts), SHOWN_CHARS))

    @admin.display(description=_("Hook"))
    def shown_hook(self, run: Any) -> str:
        """Return the name of the function that is called after the run has ended."""
        return run.hook or "-"

    @admin.display(description=_("Started"))
    def shown_start(self, run: Any) -> str:
        """Return the start of the last attempt in the admin's time format."""
        return str(display_for_value(run.started, "-"))

    @admin.display(description=_("Result"))
    def shown_result(self, run: Any) -> str:
        """Return the result of a success as text; a failure shows `errors` instead."""
        return str(truncatechars(repr(run.result), SHOWN_CHARS)) if run.status == "succeeded" else "-"

    @admin.display(description=_("Errors"))
    def errors(self, run: Any) -> str:
        """Return each failed attempt with its traceback."""
        parts = [f"attempt {error.attempt}: {error}\n{error.traceback}" for error in run.view.errors]
        return _lines(parts) if parts else run.view.reason or "-"

    @admin.display(description=_("Log"))
    def log(self, run: Any) -> str:
        """Return the lines that the run logged."""
        return _lines(run.view.log) if run.view.log else "-"

    @admin.display(description=_("Time taken"))
    def took(self, run: Any) -> str:
        """Return the duration of the last attempt."""
        seconds = run.time_taken()
        return "" if seconds is None else f"{seconds:.3f} s"


@admin.register(Success)
class SuccessAdmin(RunAdmin):
    """Runs that have succeeded."""

    list_display = ("name", "group", "func", "cluster", "started", "stopped", "took")
    actions = ("resubmit_task",)

    @admin.action(description=_("Resubmit selected tasks as new ones"), permissions=["resubmit"])
    def resubmit_task(self, request: Any, queryset: Any) -> None:
        """Enqueue the calls once more, as new runs."""
        _each(self, request, queryset, "enqueued once more", lambda run: app.again(run.pk))


@admin.register(Failure)
class FailureAdmin(RunAdmin):
    """Runs that failed, were cancelled, missed their time or are broken."""

    list_display = ("name", "group", "func", "cluster", "status", "started", "stopped", "short_result")
    list_filter = ("status", "cluster")
    actions = ("resubmit_task", "restore")

    @admin.display(description=_("Short result"))
    def short_result(self, run: Any) -> str:
        """Return the beginning of the error."""
        return str(truncatechars(str(run.result or ""), 100))

    @admin.action(description=_("Resubmit selected tasks (the same runs)"), permissions=["act"])
    def resubmit_task(self, request: Any, queryset: Any) -> None:
        """Send the runs back to their queues, with the same ids and errors."""
        _each(self, request, queryset, "sent back", lambda run: app.retry(run.pk))

    @admin.action(description=_("Restore broken tasks"), permissions=["act"])
    def restore(self, request: Any, queryset: Any) -> None:
        """Try again to read runs that were set aside."""

        def restore(run: Any) -> None:
            if not app.restore(run.pk):
                raise ValueError(run.view.reason or "it cannot be restored")

        _each(self, request, queryset.filter(status="broken"), "restored", restore)


@admin.register(OrmQ)
class QueueAdmin(RunAdmin):
    """Waiting runs and running ones."""

    list_display = ("name", "group", "func", "cluster", "status", "priority", "run_at", "lock", "id")
    list_filter = ("status", "cluster")
    actions = ("cancel", "move_to_front")

    @admin.action(description=_("Cancel selected tasks"), permissions=["delete"])
    def cancel(self, request: Any, queryset: Any) -> None:
        """Cancel waiting runs and stop started ones."""
        _each(self, request, queryset, "cancelled", lambda run: app.cancel(run.pk))

    @admin.action(description=_("Move selected tasks to the front"), permissions=["act"])
    def move_to_front(self, request: Any, queryset: Any) -> None:
        """Give waiting runs the highest priority."""
        _each(self, request, queryset, "moved to the front", lambda run: app.prioritize(run.pk, FRONT_PRIORITY))


@admin.register(Schedule)
class ScheduleAdmin(admin.ModelAdmin):
    """Schedules: functions and their times."""

    show_full_result_count = False
    list_per_page = 50
    list_display = (
        *("id", "name", "func", "schedule_type", "repeats", "cluster", "next_run", "last_run", "last_success"),
    )
    list_display_links = ("id", "name")
    list_filter = ("next_run", "schedule_type", "cluster")
    search_fields = ("name", "func")
    actions = ("run_now", "pause", "resume", "skip_next")

    def get_changelist_instance(self, request: Any) -> Any:
        """Read the last runs of all rows on the page at once."""
        found = super().get_changelist_instance(request)
        ids = [row.task for row in found.result_list if row.task]
        runs = Task.objects.in_bulk(ids)
        for row in found.result_list:
            row.last = runs.get(row.task)
        return found

    @admin.display(description=_("Last run"))
    def last_run(self, row: Any) -> Any:
        """Return a link to the last run."""
        run = getattr(row, "last", None)
        return None if run is None else link_to(run)

    @admin.display(description=_("Success"), boolean=True)
    def last_success(self, row: Any) -> bool | None:
        """Return True if the last run succeeded."""
        run = getattr(row, "last", None)
        return None if run is None or run.stopped is None else bool(run.success)

    @admin.action(description=_("Run selected schedules now"), permissions=["change"])
    def run_now(self, request: Any, queryset: Any) -> None:
        """Run the schedules once, in addition to their times."""
        _each(self, request, queryset, "started", lambda row: app.run_now(job_id_of(row.pk)))

    @admin.action(description=_("Pause selected schedules"), permissions=["change"])
    def pause(self, request: Any, queryset: Any) -> None:
        """Keep the schedules from firing."""
        _each(self, request, queryset.exclude(next_run=None), "paused", lambda row: app.pause_job(job_id_of(row.pk)))

    @admin.action(description=_("Resume selected schedules"), permissions=["change"])
    def resume(self, request: Any, queryset: Any) -> None:
        """Let paused schedules fire again, at their next time from now."""
        _each(self, request, queryset.filter(next_run=None), "resumed", lambda row: row.resume())

    @admin.action(description=_("Skip the next time of selected schedules"), permissions=["change"])
    def skip_next(self, request: Any, queryset: Any) -> None:
        """Skip the schedules' next time."""
        _each(self, request, queryset, "will skip their next time", lambda row: app.skip_next(job_id_of(row.pk)))
