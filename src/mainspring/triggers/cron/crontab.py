"""Translate lines of crontab(5) into the fields of a cron trigger."""

from __future__ import annotations

from typing import Final

from mainspring.triggers.cron.fields import CronFieldError, parse_field, weekday_text

__all__ = ["crontab_fields"]

_ORDER: Final = ("minute", "hour", "day", "month", "day_of_week")
_SHORT: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def crontab_fields(line: str) -> tuple[dict[str, str], bool]:
    """Read the time of a crontab line: the trigger's fields, and whether either of its two day fields is enough.

    The result has weekdays by name, since their numbers mean other days in a cron trigger. As in crontab(5), if both
    the day of the month and the weekday are restricted (do not start with `*`), a day needs to match only one of them.
    """
    words = line.split()
    if len(words) == 1 and words[0].startswith("@"):
        words = _expand(words[0]).split()
    if len(words) != len(_ORDER):
        more = "; seconds and years are for CronTrigger(second=..., year=...)" if len(words) > len(_ORDER) else ""
        raise ValueError(
            f"crontab {line!r} has {len(words)} field{'s' * (len(words) != 1)}, not 5: "
            f"minute, hour, day of month, month, day of week{more}"
        )
    fields: dict[str, str] = {}
    begin = 0
    for name, word in zip(_ORDER, words, strict=True):
        begin = max(line.find(word, begin), 0)
        try:
            field = parse_field(name, word, crontab=True)
        except CronFieldError as error:
            start, end = begin + error.start, begin + error.end
            raise CronFieldError(name, error.reason, line, start, end, crontab=True) from None
        begin += len(word)
        fields[name] = weekday_text(field.mask) if name == "day_of_week" and word != "*" else field.text
    return fields, not words[2].startswith("*") and not words[4].startswith("*")


def _expand(word: str) -> str:
    if word.lower() in _SHORT:
        return _SHORT[word.lower()]
    if word.lower() == "@reboot":
        raise ValueError("'@reboot' is not a time; call the function when your program starts")
    from mainspring.errors import near

    raise ValueError(f"crontab {word!r} is unknown{near(word, _SHORT)}")
