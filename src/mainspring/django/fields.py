"""Fields for the store's columns: `InstantField`, a time in whole microseconds; `KeyField`, a long id."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models

from mainspring.core.instants import from_us, to_us

__all__ = ["InstantField", "KeyField"]


class InstantField(models.DateTimeField):
    """A datetime in a column of whole microseconds since 1970, UTC.

    Ordering, `__gt`, `__lt`, `__range` and `__in` work; lookups of a part, such as `__year`, do not.
    """

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | None, *_: Any) -> datetime | None:
        return None if value is None else from_us(value)

    def get_prep_value(self, value: Any) -> int | None:
        if isinstance(value, int):
            return value
        found = super().get_prep_value(value)
        return None if found is None else to_us(found)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> int | None:
        return value if prepared else self.get_prep_value(value)

    def get_db_converters(self, connection: Any) -> list[Any]:
        return [self.from_db_value]


class KeyField(models.CharField):
    """The id of a record. It may exceed 255 characters: the supported databases can index that."""

    def check(self, **kwargs: Any) -> list[Any]:
        return [message for message in super().check(**kwargs) if message.id != "mysql.W003"]

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.CharField", args, kwargs
