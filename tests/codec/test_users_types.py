"""Values of types that users bring: kinds of built-in types, attrs classes, pydantic models, any other by hooks."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import attrs
import pytest

from mainspring.codec import Codec, EncodeError, FrameError, Reason
from mainspring.errors import ConfigurationError
from tests.codec.shapes import JOB, KEYRING, Color, Money, Plain, Text, exact

SIGNED = Codec(KEYRING)


def back(value: Any, codec: Codec = SIGNED) -> Any:
    return codec.loads(codec.dumps(value, JOB), JOB)


class SafeString(str):
    """Text that is HTML already, as Django has it: str(...) gives the same object."""

    def __str__(self) -> str:
        return self


class Reversed(list[int]):
    def __iter__(self) -> Any:
        return reversed(list(super().__iter__()))


class Shouting(dict[str, int]):
    def items(self) -> Any:
        return [(key.upper(), value) for key, value in super().items()]


class Sorted(OrderedDict[str, int]):
    pass


class Metres(float):
    def __float__(self) -> float:
        return -1.0


class Count(int):
    def __int__(self) -> int:
        return -1


class Three(tuple[int, ...]):
    pass


class Raw(bytes):
    pass


KINDS: list[tuple[Any, Any]] = [
    (SafeString("<b>"), "<b>"),
    (SafeString("a lone \ud800"), "a lone \ud800"),
    (Count(3), 3),
    (Count(2**70), 2**70),
    (Metres(2.5), 2.5),
    (Reversed([1, 2]), [1, 2]),
    (Shouting(a=1), {"a": 1}),
    (Counter("aab"), {"a": 2, "b": 1}),
    (Sorted(b=1, a=2), OrderedDict(b=1, a=2)),
    (Three([1, 2, 3]), (1, 2, 3)),
    (Raw(b"x"), b"x"),
    ({SafeString("k"): SafeString("v")}, {"k": "v"}),
    ({Count(1): Text("v"), (Count(2),): 3}, {1: "v", (2,): 3}),
    ({SafeString("k"), 1}, {"k", 1}),
    (Money(Decimal(1), SafeString("EUR")), Money(Decimal(1), "EUR")),
]


@pytest.mark.parametrize("codec", [SIGNED, Codec(types=[Money])], ids=["signed", "unsigned"])
@pytest.mark.parametrize(("value", "plain"), KINDS, ids=[type(value).__name__ for value, _ in KINDS])
def test_a_kind_of_a_built_in_type_comes_back_as_that_type(codec: Codec, value: Any, plain: Any) -> None:
    assert exact(back(value, codec)) == exact(plain)
    assert exact(back({"a": [value, (value,)]}, codec)) == exact({"a": [plain, (plain,)]})


def test_where_pickle_is_allowed_a_kind_of_a_built_in_type_keeps_its_own_type() -> None:
    assert type(back([SafeString("<b>")], Codec(KEYRING, allow_pickle=True))[0]) is SafeString


def test_a_kind_of_list_that_contains_itself_is_refused() -> None:
    ring = Reversed()
    ring.append(ring)  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="does it contain itself"):
        SIGNED.dumps(ring, JOB)


# -- attrs -------------------------------------------------------------------------------------------------------------


@attrs.define
class Line:
    item: str
    amount: int = 1
    _note: str | None = None
    tags: list[str] = attrs.Factory(list)


@attrs.frozen(slots=False)
class Basket:
    lines: tuple[Line, ...]
    color: Color = Color.RED
    total: int = attrs.field(init=False)

    @total.default
    def _total(self) -> int:
        return sum(line.amount for line in self.lines)


@pytest.mark.parametrize("codec", [SIGNED, Codec(types=[Line, Basket, Color])], ids=["signed", "unsigned"])
def test_an_attrs_class_is_stored_by_its_fields(codec: Codec) -> None:
    basket = Basket((Line("pen", 2, "blue"), Line("ink", tags=["new"])), Color.GREEN)
    assert back(basket, codec) == basket


def test_an_attrs_class_may_gain_a_field_with_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = Codec(KEYRING)
    frame = codec.dumps([Line("pen")], JOB)
    fields: dict[str, Any] = {name: attrs.field() for name in ("item", "amount", "_note", "tags")}
    later = attrs.make_class("Line", {**fields, "vat": attrs.field(default=19)})
    later.__module__, later.__qualname__ = Line.__module__, Line.__qualname__
    monkeypatch.setattr(sys.modules[__name__], "Line", later)
    (line,) = codec.loads(frame, JOB)
    assert (line.item, line.vat) == ("pen", 19)


# -- pydantic ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of pydantic models."""
    pytest.importorskip("pydantic")
    module = ModuleType("models_of_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source = """
from decimal import Decimal
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

class Item(BaseModel):
    sku: str = Field(alias="stock keeping unit")
    price: Decimal = Decimal(1)

class Invoice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    items: list[Item]
    number: int = 7
    _seen: int = PrivateAttr(default=0)

    @field_validator("number")
    @classmethod
    def doubled(cls, value):
        return value * 2
"""
    exec(compile(source, "models", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("signed", [True, False])
def test_a_pydantic_model_comes_back_as_it_was_without_being_validated_again(models: Any, signed: bool) -> None:
    codec = SIGNED if signed else Codec(types=[models.Item, models.Invoice])
    invoice = models.Invoice(items=[models.Item(**{"stock keeping unit": "a1"})], number=4, other="kept")
    object.__setattr__(invoice, "__pydantic_private__", {"_seen": 3})
    made = back({"invoice": invoice}, codec)["invoice"]
    assert made == invoice
    assert (made.number, made._seen, made.model_extra) == (8, 3, {"other": "kept"})
    assert made.items[0].model_dump(exclude_unset=True) == {"sku": "a1"}


def test_without_a_key_a_pydantic_model_has_to_be_registered(models: Any) -> None:
    with pytest.raises(EncodeError, match="restored only if registered"):
        Codec().dumps(models.Item(**{"stock keeping unit": "a1"}), JOB)


class SeenFirstHere(NamedTuple):
    number: int
    word: str


def test_other_types_do_not_need_what_pydantic_lacks_while_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", ModuleType("pydantic"))
    assert back(SeenFirstHere(1, "a")) == SeenFirstHere(1, "a")


# -- any other, by a hook ----------------------------------------------------------------------------------------------


def with_fractions(keyring: Any = KEYRING) -> Codec:
    codec = Codec(keyring)
    codec.register(Fraction, dump=lambda value: [value.numerator, value.denominator], load=lambda pair: Fraction(*pair))
    return codec


@pytest.mark.parametrize("keyring", [KEYRING, None], ids=["signed", "unsigned"])
def test_any_type_is_stored_by_the_hooks_it_is_registered_with(keyring: Any) -> None:
    value = {"a": (Fraction(1, 3), {Fraction(1, 2): 1})}
    assert back(value, with_fractions(keyring)) == value


def test_a_reader_without_the_hooks_says_what_is_missing() -> None:
    with pytest.raises(FrameError, match="nobody said here how to load 'fractions:Fraction'") as caught:
        SIGNED.loads(with_fractions().dumps(Fraction(1, 3), JOB), JOB)
    assert caught.value.reason is Reason.MISSING_CODE


def test_what_a_hook_makes_has_to_be_storable() -> None:
    codec = Codec(KEYRING)
    codec.register(Plain, dump=lambda value: value.value, load=Plain)
    assert back([Plain(Plain(1))], codec) == [Plain(Plain(1))]
    with pytest.raises(EncodeError, match=r"^a is an? object") as caught:
        codec.dumps({"a": Plain(object())}, JOB)
    assert caught.value.kind == "object"


def test_a_hook_that_raises_is_named() -> None:
    codec = Codec(KEYRING)
    codec.register(Plain, dump=lambda value: 1 // 0, load=Plain)
    with pytest.raises(EncodeError, match=r"a\[0\] is a .*Plain, whose dump= raised ZeroDivisionError"):
        codec.dumps({"a": [Plain(1)]}, JOB)


class Mute(Exception):
    def __str__(self) -> str:
        raise TypeError("it says nothing")


def test_a_hook_whose_error_cannot_be_shown_refuses_its_frame_and_no_more() -> None:
    def load(value: Any) -> Any:
        raise Mute

    codec = Codec(KEYRING)
    codec.register(Plain, dump=lambda value: value.value, load=load)
    with pytest.raises(FrameError, match="cannot be restored: Mute") as caught:
        back([Plain(1)], codec)
    assert caught.value.reason is Reason.BAD_DATA


def test_a_hook_needs_both_halves() -> None:
    with pytest.raises(ConfigurationError, match="belong together"):
        Codec().register(Plain, dump=str)
