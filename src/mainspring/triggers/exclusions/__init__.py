"""Exclusions: times at which a job does not fire (dates, weekdays, times of day, events of an iCalendar file)."""

from mainspring.triggers.exclusions.files import read_exclusions
from mainspring.triggers.exclusions.rules import Exclusions

__all__ = ["Exclusions", "read_exclusions"]
