"""`Schedule`: a table with django-q's columns. The row says what to do; its job says when."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mainspring.django.schedules.rows import ScheduleQuerySet, ScheduleVerbs, watch_deletions

__all__ = ["Schedule"]


class Schedule(ScheduleVerbs, models.Model):
    """A schedule in django-q's form: a function, its arguments as text, and its times."""

    ONCE, MINUTES, HOURLY, DAILY, WEEKLY, BIWEEKLY = "O", "I", "H", "D", "W", "BW"
    MONTHLY, BIMONTHLY, QUARTERLY, YEARLY, CRON = "M", "BM", "Q", "Y", "C"
    TYPE = (
        (ONCE, _("Once")),
        (MINUTES, _("Minutes")),
        (HOURLY, _("Hourly")),
        (DAILY, _("Daily")),
        (WEEKLY, _("Weekly")),
        (BIWEEKLY, _("Biweekly")),
        (MONTHLY, _("Monthly")),
        (BIMONTHLY, _("Bimonthly")),
        (QUARTERLY, _("Quarterly")),
        (YEARLY, _("Yearly")),
        (CRON, _("Cron")),
    )

    name = models.CharField(max_length=100, null=True, blank=True)
    func = models.CharField(max_length=256, help_text="e.g. module.tasks.function")
    hook = models.CharField(max_length=256, null=True, blank=True, help_text="e.g. module.tasks.hook")
    args = models.TextField(null=True, blank=True, help_text=_("e.g. 1, 2, 'John'"))
    kwargs = models.TextField(null=True, blank=True, help_text=_("e.g. x=1, y=2, name='John'"))
    schedule_type = models.CharField(max_length=2, choices=TYPE, default=ONCE, verbose_name=_("Schedule type"))
    minutes = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text=_("Number of minutes for the Minutes type")
    )
    repeats = models.IntegerField(default=-1, verbose_name=_("Repeats"), help_text=_("n = n times, -1 = forever"))
    next_run = models.DateTimeField(default=timezone.now, null=True, blank=True, verbose_name=_("Next run"))
    cron = models.CharField(max_length=100, null=True, blank=True, help_text=_("Cron expression"))
    task = models.CharField(max_length=320, null=True, editable=False)
    cluster = models.CharField(max_length=100, default=None, null=True, blank=True)
    intended_date_kwarg = models.CharField(
        max_length=100,
        null=True,
        blank=True,
        help_text=_("Name of the keyword argument that gets the time for which the run was planned"),
    )

    objects = ScheduleQuerySet.as_manager()

    class Meta:
        verbose_name = _("Scheduled task")
        verbose_name_plural = _("Scheduled tasks")
        ordering: ClassVar[list[str]] = ["next_run"]

    def __str__(self) -> str:
        return str(self.name or self.func)


watch_deletions(Schedule)
