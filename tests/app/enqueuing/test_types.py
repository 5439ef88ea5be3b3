"""Arguments and results of types that a user brings."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.codec import EncodeError
from tests.app.kit import LASTING, LIMIT


class SafeString(str):
    """Text of which str(...) gives the same object, as Django has it."""

    def __str__(self) -> str:
        return self


def shown(text: str, folder: Path) -> tuple[str, str, Path]:
    return type(text).__name__, text, folder / "below"


def half(value: Fraction) -> Fraction:
    return value / 2


@LASTING
def test_a_kind_of_str_and_a_path_are_taken_as_arguments(app: Mainspring) -> None:
    app.start(work=True)
    given = app.task(shown).enqueue(SafeString("<b>"), Path("/srv"))
    assert given.result(LIMIT) == ("str", "<b>", Path("/srv/below"))


@LASTING
def test_a_registered_type_is_taken_as_argument_and_result(app: Mainspring) -> None:
    task = app.task(half)
    with pytest.raises(EncodeError, match="say how to store it \\(register_type\\)"):
        task.enqueue(Fraction(1, 3))
    app.register_type(Fraction, dump=str, load=Fraction)
    app.start(work=True)
    assert task.enqueue(Fraction(1, 3)).result(LIMIT) == Fraction(1, 6)
