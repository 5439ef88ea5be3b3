"""Parse the fields of a cron expression into bit masks; errors show the place of the mistake."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["FIELD_NAMES", "LIMITS", "MONTHS", "WEEKDAYS", "CronField", "CronFieldError", "parse_field", "weekday_text"]

FIELD_NAMES: Final = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
LIMITS: Final = {
    "year": (1970, 9999),
    "month": (1, 12),
    "day": (1, 31),
    "week": (1, 53),
    "day_of_week": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_POSITIONS: Final = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": -1}
_NAMES: Final = {
    "month": {name: number for number, name in enumerate(MONTHS, 1)},
    "day_of_week": {name: number for number, name in enumerate(WEEKDAYS)},
}
_CRONTAB_WEEKDAYS: Final = {name: (number + 1) % 7 for number, name in enumerate(WEEKDAYS)}


class CronFieldError(ValueError):
    """A cron expression is wrong in `field`, at `text[start:end]`, for this `reason`."""

    def __init__(self, field: str, reason: str, text: str, start: int, end: int, crontab: bool = False) -> None:
        super().__init__(field, reason, text, start, end, crontab)
        self.field, self.reason, self.text = field, reason, text
        self.start, self.end, self.crontab = start, end, crontab

    def __str__(self) -> str:
        if self.crontab:
            mark = " " * self.start + "^" * max(1, self.end - self.start)
            return f"crontab field {self.field!r}: {self.reason}\n    {self.text}\n    {mark}"
        place = "" if self.text[self.start : self.end] == self.text else f" (in {self.text!r})"
        return f"cron field {self.field!r}: {self.reason}{place}"


class CronField(NamedTuple):
    """One field: its normalized text, its allowed values as bits, and for `day` the parts that depend on the month."""

    name: str
    text: str
    is_default: bool
    mask: int
    positions: tuple[tuple[int, int], ...] = ()
    last_day: bool = False

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"CronField({self.name!r}, {self.text!r})"


def parse_field(name: str, text: str, is_default: bool = False, crontab: bool = False) -> CronField:
    """Parse one field; with `crontab`, number weekdays as crontab(5) does (0 and 7 are Sunday)."""
    mask, last_day = 0, False
    positions: list[tuple[int, int]] = []
    texts: list[str] = []
    begin = 0
    for part in text.split(","):
        item = _FieldItem(name, text, begin + len(part) - len(part.lstrip()), part.strip().lower(), crontab)
        begin += len(part) + 1
        words = item.item.split()
        if name == "day" and words == ["last"]:
            last_day = True
        elif name == "day" and len(words) == 2:
            positions.append(item.position(*words))
        else:
            mask |= item.mask()
        texts.append(" ".join(words))
    return CronField(name, ",".join(texts), is_default, mask, tuple(positions), last_day)


class _FieldItem:
    """One element of a field's comma-separated list, and its position in the text."""

    __slots__ = ("crontab", "item", "name", "start", "text")

    def __init__(self, name: str, text: str, start: int, item: str, crontab: bool) -> None:
        self.name, self.text, self.start, self.item, self.crontab = name, text, start, item, crontab

    def mask(self) -> int:
        """Read `*`, `a`, `a-b`, each with an optional `/step`, as bits."""
        span, slash, step_text = self.item.partition("/")
        low, high = LIMITS[self.name]
        sunday_first = self.crontab and self.name == "day_of_week"
        first, last = self.span(span, 7 if sunday_first else high, bool(slash))
        step = self.step(step_text, len(span) + 1) if slash else 1
        if step > max(1, last - first):
            raise self.error(f"the step {step} is longer than the range {span!r}", len(span) + 1, len(self.item))
        bits = _progression(first, last, step)
        if last > high:  # the range wraps around: fri-mon, nov-feb
            bits = (bits | bits >> high - low + 1) & _progression(low, high, 1)
        if sunday_first:
            bits = bits >> 1 | (bits & 1) << 6
        return bits

    def span(self, span: str, top: int, stepped: bool) -> tuple[int, int]:
        """Read the ends of a range; a range that wraps around ends above the field's highest value."""
        low, high = LIMITS[self.name]
        if span == "*":
            return low, high
        first_text, dash, last_text = span.partition("-")
        first = self.value(first_text, 0, top)
        if not dash:
            return first, high if stepped else first
        last = self.value(last_text, len(first_text) + 1, top)
        if first <= last:
            return first, last
        if first_text.isalpha() and last_text.isalpha():
            return first, last + high - low + 1
        raise self.error(f"{span!r} runs backwards; write '{first}-{top},{low}-{last}' to go round", 0, len(span))

    def value(self, word: str, at: int, top: int) -> int:
        """Read a number or a name."""
        low = LIMITS[self.name][0]
        names = _NAMES.get(self.name, {})
        if word.isascii() and word.isdecimal():
            number = int(word)
            if number < low:
                raise self.error(f"{word!r} is below {low}", at, at + len(word))
            if number > top:
                raise self.error(f"{word!r} is above {top}", at, at + len(word))
            return number
        if word in names:
            return _CRONTAB_WEEKDAYS[word] if self.crontab and self.name == "day_of_week" else names[word]
        raise self.error(self.puzzled(word, tuple(names)), at, at + len(word))

    def step(self, word: str, at: int) -> int:
        """Read the step after the slash."""
        if not (word.isascii() and word.isdecimal() and int(word) > 0):
            raise self.error(f"the step {word!r} is not a number above 0", at, at + len(word))
        return int(word)

    def position(self, which: str, weekday: str) -> tuple[int, int]:
        """Read `1st mon` or `last fri`."""
        if which not in _POSITIONS:
            raise self.error(self.puzzled(which, tuple(_POSITIONS)), 0, len(which))
        if weekday not in WEEKDAYS:
            raise self.error(self.puzzled(weekday, WEEKDAYS), len(self.item) - len(weekday), len(self.item))
        return _POSITIONS[which], WEEKDAYS.index(weekday)

    def puzzled(self, word: str, names: tuple[str, ...]) -> str:
        """Say that a word is not known here, and suggest a similar one."""
        if not word:
            return "a value is missing"
        if word == "?":
            return "'?' means nothing here; write '*'"
        if self.name == "day" and word == "l":
            return "'l' means nothing here; write 'last'"
        if not names:
            low, high = LIMITS[self.name]
            return f"{word!r} is not a number from {low} to {high}"
        from mainspring.errors import near

        starts = [name for name in names if name == word[:3]]
        return f"{word!r} is neither a number nor a name{near(word[:3] if starts else word, starts or names)}"

    def error(self, reason: str, start: int, end: int) -> CronFieldError:
        return CronFieldError(self.name, reason, self.text, self.start + start, self.start + end)


def _progression(first: int, last: int, step: int) -> int:
    """Set the bits first, first + step, ... up to last, by doubling: a field of years has eight thousand."""
    count = (last - first) // step + 1
    bits, done = 1, 1
    while done < count:
        bits |= bits << step * done
        done *= 2
    return (bits & (1 << step * (count - 1) + 1) - 1) << first


def weekday_text(mask: int) -> str:
    """Write a mask of weekdays by name: `mon-fri`, `mon,wed`."""
    texts, day = [], 0
    while day < 7:
        end = day
        while mask >> end & 1:
            end += 1
        if end > day + 1:
            texts.append(f"{WEEKDAYS[day]}-{WEEKDAYS[end - 1]}")
        elif end > day:
            texts.append(WEEKDAYS[day])
        day = end + 1
    return ",".join(texts)
