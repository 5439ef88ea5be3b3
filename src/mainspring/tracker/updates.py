"""The values that a job's body sets, written when it succeeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mainspring.errors import near
from mainspring.tracker.errors import ColumnError
from mainspring.tracker.rules import TRACKER_COLUMNS

__all__ = ["Updates"]


@dataclass
class Updates:
    """Values by column, written in one step with the status `succeeded`, or not at all."""

    values: dict[str, Any] = field(default_factory=dict)
    # Column -> whether it is part of the primary key; None if the table is not known yet.
    _columns: Mapping[str, bool] | None = field(default=None, repr=False, compare=False)

    def set(self, key: str, value: Any) -> None:
        """Set a column of the job; raise KeyError for the tracker's own columns and for unknown ones."""
        check_column(key, self._columns)
        self.values[key] = value


def check_column(key: str, columns: Mapping[str, bool] | None) -> None:
    """Raise for a column that does not exist, or that only the tracker writes."""
    if not isinstance(key, str):
        raise TypeError(f"a column is named by a text, not by {key!r}")
    own = {name for name in columns or () if name not in TRACKER_COLUMNS and not (columns or {})[name]}
    if key in TRACKER_COLUMNS or (columns or {}).get(key):
        what = (
            "is part of the primary key"
            if key not in TRACKER_COLUMNS or key == "id"
            else "is written by the tracker only"
        )
        raise ColumnError(f"column {key!r} cannot be set: it {what}{near(key, own)}")
    if columns is not None and key not in columns:
        raise ColumnError(f"the job has no column {key!r}{near(key, own)}")
