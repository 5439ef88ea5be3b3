"""Arrays for PostgreSQL: what the driver itself reads of them."""

from __future__ import annotations

from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")

from psycopg.adapt import Transformer  # noqa: E402
from psycopg.pq import Format  # noqa: E402

from mainspring.jobstores.sqlalchemy.postgresql.arrays import _DUMPERS as DUMPERS  # noqa: E402
from mainspring.jobstores.sqlalchemy.postgresql.arrays import array  # noqa: E402

TEXTS = ["", "a", "Grüße", "x" * 5000]
NUMBERS = [0, 1, -1, 2**31 - 1, -(2**31)]


def read_back(kind: str, values: list[Any]) -> Any:
    made = array(kind, values)
    dumper = DUMPERS[type(made)](type(made))
    reader = Transformer()
    reader.set_loader_types([dumper.oid], Format.BINARY)
    return reader.load_sequence([dumper.dump(made)])[0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", TEXTS),
        ("bytea", [b"", b"\0\xff", b"x" * 5000]),
        ("bigint", [*NUMBERS, 2**63 - 1, -(2**63)]),
        ("integer", NUMBERS),
    ],
)
def test_the_driver_reads_what_was_written(kind: str, values: list[Any]) -> None:
    for some in (values, [*values, None], [None], []):
        assert read_back(kind, some) == some


def test_a_number_that_no_column_can_keep_is_refused() -> None:
    with pytest.raises(psycopg.DataError, match="out of range"):
        read_back("bigint", [1, 2**63])
    with pytest.raises(psycopg.DataError, match="out of range"):
        read_back("integer", [None, 2**31])


def test_a_cursor_that_knows_nothing_of_arrays_takes_them_for_lists() -> None:
    assert array("text", iter(TEXTS)) == TEXTS
