"""Describe cron expressions in plain English, such as `every weekday at 09:00`."""

from __future__ import annotations

from typing import Final

from mainspring.triggers.cron.fields import LIMITS, CronField
from mainspring.triggers.cron.schedule import CronSchedule
from mainspring.triggers.words import DAY_NAMES, every, join, ordinal

__all__ = ["describe_schedule"]

_MONTHS: Final = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_POSITIONS: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", -1: "last"}
_WEEKDAYS: Final = [0, 1, 2, 3, 4]
_WEEKEND: Final = [5, 6]
_MOST_TIMES: Final = 6
"""List at most this many times of day individually."""


def describe_schedule(schedule: CronSchedule) -> str:
    """Say in words when a schedule fires, without its time zone."""
    year, month, day, week, weekday, hour, minute, second = schedule.fields
    times = _times(_values(hour), _values(minute), _values(second))
    if times is not None:
        text = f"{_which_days(month, day, weekday, schedule.either_day)} at {times}"
    else:
        text = _rhythm(_values(hour), _values(minute), _values(second))
        days = _on_days(month, day, weekday, schedule.either_day)
        text = f"{text} {days}" if days else text
    if not _full(week):
        weeks = _values(week)
        text += f" in ISO week{'s' if len(weeks) > 1 else ''} {_ranges([str(n) for n in weeks], weeks)}"
    if not _full(year):
        years = _values(year)
        text += f" in {_ranges([str(n) for n in years], years)}"
    return text if schedule.calendar.years() else f"{text}, which never comes"


def _values(field: CronField) -> list[int]:
    low, high = LIMITS[field.name]
    return [value for value in range(low, high + 1) if field.mask >> value & 1]


def _full(field: CronField) -> bool:
    low, high = LIMITS[field.name]
    return field.mask.bit_count() == high - low + 1


def _times(hours: list[int], minutes: list[int], seconds: list[int]) -> str | None:
    """List the times of day if there are few of them and they follow no simple rhythm; else return None."""
    count = len(hours) * len(minutes) * len(seconds)
    if count > _MOST_TIMES or (count > 2 and _step(hours, 24) and len(minutes) == len(seconds) == 1):
        return None
    return join([_time(h, m, s) for h in hours for m in minutes for s in seconds])


def _time(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


def _step(values: list[int], size: int) -> int:
    """Return the step of values that divide a clock of this size evenly; 0 if they do not."""
    if len(values) < 2:
        return 0
    step = values[1] - values[0]
    even = values[0] < step and not size % step and values == list(range(values[0], size, step))
    return step if even else 0


def _rhythm(hours: list[int], minutes: list[int], seconds: list[int]) -> str:
    """Say how often a frequent schedule fires."""
    all_day = len(hours) == 24
    if len(seconds) > 1:
        text = _often(seconds, "second", "minute")
        if len(minutes) < 60:
            text += f" in {_numbered('minute', minutes)}{' of every hour' if all_day else ''}"
        return text if all_day else f"{text} {_between(hours, minutes, seconds)}"
    at_second = f" at second {seconds[0]}" if seconds[0] else ""
    if len(minutes) > 1:
        text = _often(minutes, "minute", "hour") + at_second
        return text if all_day else f"{text} {_between(hours, minutes, seconds)}"
    at = f" at {minutes[0]} minutes past" if minutes[0] > 1 else " at 1 minute past" if minutes[0] else ""
    if at and at_second:
        at, at_second = f" at {minutes[0]} min {seconds[0]} s past", ""
    step = _step(hours, 24)
    if step:
        text = every(step, "hour") + at + at_second
        return f"{text}, from {_time(hours[0], minutes[0], seconds[0])}" if hours[0] else text
    return f"every hour{at}{at_second} {_between(hours, minutes, seconds)}"


def _often(values: list[int], unit: str, whole: str) -> str:
    step = _step(values, 60)
    if step and not values[0]:
        return every(step, unit)
    if step:
        return f"{every(step, unit)} from {unit} {values[0]}"
    return f"every {whole} at {_numbered(unit, values)}"


def _numbered(unit: str, values: list[int]) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {_ranges([str(value) for value in values], values)}"


def _between(hours: list[int], minutes: list[int], seconds: list[int]) -> str:
    """Say in which hours a schedule fires, by the first and the last time of each stretch of hours."""
    stretches = _stretches(hours)
    return join(
        [
            f"from {_time(first, minutes[0], seconds[0])} to {_time(last, minutes[-1], seconds[-1])}"
            if (first, minutes[0], seconds[0]) != (last, minutes[-1], seconds[-1])
            else f"at {_time(first, minutes[0], seconds[0])}"
            for first, last in stretches
        ]
    )


def _stretches(values: list[int]) -> list[tuple[int, int]]:
    """Cut ascending numbers into stretches without a gap."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][1] == value - 1:
            found[-1] = found[-1][0], value
        else:
            found.append((value, value))
    return found


def _ranges(names: list[str], values: list[int]) -> str:
    """List names, three or more in a row as a range: `1 to 5 and 9`."""
    name = dict(zip(values, names, strict=True))
    parts: list[str] = []
    for first, last in _stretches(values):
        if last - first > 1:
            parts.append(f"{name[first]} to {name[last]}")
        else:
            parts += [name[value] for value in range(first, last + 1)]
    return join(parts)


def _which_days(month: CronField, day: CronField, weekday: CronField, either: bool) -> str:
    """Say on which days, as the beginning of a sentence: `every weekday`, `on the 1st of every month`."""
    if _any_day(day):
        return f"{_every_weekday(weekday)}{_in_months(month)}"
    return _days_of_month(month, day, weekday, either, _every_weekday(weekday))


def _on_days(month: CronField, day: CronField, weekday: CronField, either: bool) -> str:
    """Say on which days, as the end of a sentence: `on weekdays`; nothing for every day."""
    if _any_day(day):
        days = "" if _full(weekday) else _on_weekdays(weekday)
        return f"{days}{_in_months(month)}".strip()
    return _days_of_month(month, day, weekday, either, _on_weekdays(weekday))


def _any_day(day: CronField) -> bool:
    return _full(day) and not day.positions and not day.last_day


def _days_of_month(month: CronField, day: CronField, weekday: CronField, either: bool, weekdays: str) -> str:
    days = _values(day)
    names = [ordinal(number) for number in days]
    parts = [_even_days(days) or _ranges(names, days)] if days else []
    parts += [f"{_POSITIONS[which]} {DAY_NAMES[target]}" for which, target in day.positions]
    if day.last_day:
        parts.append("last day")
    months = "every month" if _full(month) else _month_names(month)
    text = f"on the {' and the '.join(parts)} of {months}".replace("on the every", "on every")
    if _full(weekday):
        return text
    if either:
        return f"{text} and {weekdays}"
    return f"{text} (if it is a {join([DAY_NAMES[number] for number in _values(weekday)], 'or')})"


def _even_days(days: list[int]) -> str | None:
    """Name many days of the month by their step, if they have one."""
    step = days[1] - days[0] if len(days) > _MOST_TIMES else 1
    if step == 1 or days != list(range(days[0], days[-1] + 1, step)):
        return None
    return f"every {ordinal(step)} day from the {ordinal(days[0])} to the {ordinal(days[-1])}"


def _in_months(month: CronField) -> str:
    return "" if _full(month) else f" in {_month_names(month)}"


def _month_names(month: CronField) -> str:
    numbers = _values(month)
    return _ranges([_MONTHS[number] for number in numbers], numbers)


def _every_weekday(weekday: CronField) -> str:
    numbers = _values(weekday)
    if len(numbers) == 7:
        return "every day"
    if numbers == _WEEKDAYS:
        return "every weekday"
    return f"every {_ranges([DAY_NAMES[number] for number in numbers], numbers)}"


def _on_weekdays(weekday: CronField) -> str:
    numbers = _values(weekday)
    if numbers in (_WEEKDAYS, _WEEKEND):
        return "on weekdays" if numbers == _WEEKDAYS else "at weekends"
    return f"on {_ranges([f'{DAY_NAMES[number]}s' for number in numbers], numbers)}"
