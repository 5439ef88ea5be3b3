"""Arguments are checked at the enqueue, by the annotations of the task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, PositiveInt

from mainspring import Mainspring
from mainspring.errors import ConfigurationError, InvalidArguments

if TYPE_CHECKING:
    from decimal import Decimal


class Item(BaseModel):
    sku: str
    quantity: PositiveInt


class Order(BaseModel):
    items: list[Item]
    password: str = ""


@dataclass
class Point:
    x: int
    y: int


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Mainspring]:
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db", secret_key="k" * 32) as app:
        yield app


def test_a_dict_becomes_the_model_and_a_wrong_one_is_refused(app: Mainspring) -> None:
    @app.task
    def ship(order: Order, note: int = 0) -> int:
        return sum(item.quantity for item in order.items)

    app.start(work=True)
    items: Any = [{"sku": "tea", "quantity": 2}, {"sku": "jam", "quantity": 3}]
    assert app.enqueue(ship.name, {"items": items}).result(timeout=10) == 5
    assert ship.enqueue(Order(items=items), note="not checked").result(timeout=10) == 5  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments) as caught:
        app.enqueue(ship.name, order={"items": [{"sku": "tea", "quantity": 0}], "password": ["hush"]})
    assert [path for path, _ in caught.value.problems] == ["order.items[0].quantity", "order.password"]
    assert "ship refuses order.items[0].quantity: Input should be greater than 0; " in str(caught.value)
    assert "hush" not in str(caught.value)
    assert app.count() == 2
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_models_need_no_key_because_the_code_expects_them(tmp_path: Path) -> None:
    with Mainspring(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def ship(order: Order) -> str:
            return order.items[0].sku

        app.start(work=True)
        assert ship.enqueue(Order(items=[Item(sku="tea", quantity=1)])).result(timeout=10) == "tea"


def test_plain_annotations_count_if_the_task_says_so(app: Mainspring) -> None:
    @app.task(validate=True)
    def draw(point: Point, day: date, *sizes: int, **labels: str) -> str:
        return f"{point.x + point.y} {day:%d.%m.} {sum(sizes)} {labels}"

    enqueue: Any = draw.enqueue
    app.start(work=True)
    assert enqueue({"x": 1, "y": 2}, "2026-11-17", 4, 5, a="b").result(timeout=10) == "3 17.11. 9 {'a': 'b'}"
    assert enqueue(Point(1, 2), date(2026, 11, 17)).result(timeout=10) == "3 17.11. 0 {}"
    with pytest.raises(InvalidArguments) as caught:
        enqueue({"x": 1}, 7, 4, "5", a=6)
    assert [path for path, _ in caught.value.problems] == ["point", "day", "sizes[1]", "a"]


def test_results_that_are_not_known_yet_are_not_checked(app: Mainspring) -> None:
    @app.task
    def make() -> Any:
        return 3

    @app.task(validate=True)
    def double(number: int) -> int:
        return 2 * number

    app.start(work=True)
    assert double.enqueue(make.enqueue().output).result(timeout=10) == 6


def test_a_task_can_refuse_to_be_checked_and_options_keep_the_check(app: Mainspring) -> None:
    @app.task(validate=False)
    def free(order: Order) -> None: ...

    @app.task(validate=True)
    def strict(number: int) -> None: ...

    free.enqueue("anything")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="strict refuses number: Expected `int`, got `str`"):
        strict.options(delay=5).enqueue("1")  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments):
        app.add_job(strict, "interval", args=["1"], minutes=5)


def test_an_annotation_that_only_type_checkers_know_is_named(app: Mainspring) -> None:
    with pytest.raises(ConfigurationError, match="'Decimal' of 'amount'"):

        @app.task(validate=True)
        def pay(amount: Decimal) -> None: ...
