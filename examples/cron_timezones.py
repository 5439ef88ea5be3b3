"""Cron fields and crontab lines in a time zone, across a change of the clocks."""

from datetime import datetime
from zoneinfo import ZoneInfo

from mainspring.triggers.cron import CronTrigger

berlin = ZoneInfo("Europe/Berlin")


def show(title: str, trigger: CronTrigger, start: datetime, count: int = 3) -> None:
    print(f"{title}: {trigger}")
    moment = trigger.get_next_fire_time(None, start)
    for _ in range(count):
        assert moment is not None
        print(f"    {moment:%a %Y-%m-%d %H:%M %Z}")
        moment = trigger.get_next_fire_time(moment, moment)


spring = datetime(2026, 3, 28, tzinfo=berlin)  # on the 29th 02:00 becomes 03:00
autumn = datetime(2026, 10, 24, tzinfo=berlin)  # on the 25th 03:00 becomes 02:00
show("each night at 02:30, in spring", CronTrigger(hour=2, minute=30, timezone=berlin), spring)
show("each night at 02:30, in autumn", CronTrigger(hour=2, minute=30, timezone=berlin), autumn)
show("the last Friday of a month", CronTrigger(day="last fri", hour=17, timezone=berlin), spring)
show("crontab, Sundays", CronTrigger.from_crontab("0 9 * * 0", timezone=berlin), spring)
