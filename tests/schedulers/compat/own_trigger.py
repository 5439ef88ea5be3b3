"""A trigger that is found by its import path."""

from __future__ import annotations

from datetime import datetime

from mainspring.triggers.base import BaseTrigger


class Never(BaseTrigger):
    def __init__(self, colour: str) -> None:
        self.colour = colour

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        return None
