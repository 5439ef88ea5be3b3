"""References to callables, readable names, and whether arguments fit."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from mainspring.core.references import (
    check_callable_args,
    get_callable_name,
    iscoroutinefunction_partial,
    maybe_ref,
    obj_to_ref,
    ref_to_obj,
)
from mainspring.errors import CallableReferenceError


def plain(a: int, b: int = 2, *, c: int = 3) -> None: ...


def anything(*args: Any, **kwargs: Any) -> None: ...


def needs_keyword(*, c: int) -> None: ...


def positional_only(a: int, /, b: int) -> None: ...


async def coroutine() -> None: ...


class Thing:
    def method(self, x: int) -> None: ...

    @classmethod
    def of_class(cls) -> None: ...

    @staticmethod
    def static() -> None: ...

    def __call__(self) -> None: ...


class AsyncThing:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (plain, "plain"),
        (Thing, "Thing"),
        (Thing().method, "Thing.method"),
        (Thing.of_class, "Thing.of_class"),
        (Thing.static, "Thing.static"),
        (Thing(), "Thing"),
        (partial(plain, 1), "partial(plain)"),
        (math.copysign, "copysign"),
        (lambda: None, "<lambda>"),
    ],
)
def test_every_callable_has_a_name_to_show(func: Any, name: str) -> None:
    assert get_callable_name(func).endswith(name)


@pytest.mark.parametrize("func", [plain, Thing, Thing.of_class, Thing.static, math.copysign, len, Thing.method])
def test_a_reference_leads_back(func: Any) -> None:
    assert ref_to_obj(obj_to_ref(func)) == func


def test_a_bound_method_is_referred_to_by_its_function() -> None:
    assert ref_to_obj(obj_to_ref(Thing().method)) is Thing.method


def test_what_has_no_name_is_a_clear_error() -> None:
    def nested() -> None: ...

    with pytest.raises(CallableReferenceError, match="a lambda has no name to import"):
        obj_to_ref(lambda: None)
    with pytest.raises(CallableReferenceError, match=r"nested' is nested in a function"):
        obj_to_ref(nested)
    with pytest.raises(CallableReferenceError, match="a partial has no name"):
        obj_to_ref(partial(plain, 1))


def test_a_name_that_leads_elsewhere_is_refused() -> None:
    def impostor() -> None: ...

    impostor.__qualname__ = "plain"
    with pytest.raises(CallableReferenceError, match="leads to"):
        obj_to_ref(impostor)


@pytest.mark.parametrize(
    ("ref", "error", "text"),
    [
        ("math", CallableReferenceError, "write it as 'package.module:name'"),
        ("math:", CallableReferenceError, "write it as"),
        ("no.such.module:f", LookupError, "cannot import 'no.such.module'"),
        ("math:copysing", LookupError, "did you mean 'copysign'"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong(ref: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ref_to_obj(ref)


def test_a_reference_leads_to_what_the_module_holds_now(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ModuleType("shop_of_today"), ModuleType("shop_of_today")
    first.__dict__["sell"], second.__dict__["sell"] = len, max
    monkeypatch.setitem(sys.modules, "shop_of_today", first)
    assert [ref_to_obj("shop_of_today:sell") for _ in range(2)] == [len, len]
    monkeypatch.setattr(first, "sell", min)
    assert ref_to_obj("shop_of_today:sell") is min
    monkeypatch.setitem(sys.modules, "shop_of_today", second)
    assert [ref_to_obj("shop_of_today:sell") for _ in range(2)] == [max, max]
    monkeypatch.delattr(second, "sell")
    with pytest.raises(LookupError, match="leads nowhere"):
        ref_to_obj("shop_of_today:sell")
    monkeypatch.delitem(sys.modules, "shop_of_today")
    with pytest.raises(LookupError, match="cannot import"):
        ref_to_obj("shop_of_today:sell")


def test_only_text_is_looked_up() -> None:
    assert maybe_ref(plain) is plain
    assert maybe_ref("math:copysign") is math.copysign


@pytest.mark.parametrize(
    ("func", "args", "kwargs"),
    [
        (plain, [1], {}),
        (plain, [1, 2], {"c": 3}),
        (plain, [], {"a": 1}),
        (anything, [1, 2, 3], {"z": 1}),
        (needs_keyword, [], {"c": 1}),
        (positional_only, [1], {"b": 2}),
        (partial(plain, 1), [], {}),
        (Thing().method, [1], {}),
        (print, ["x"], {"end": ""}),
    ],
)
def test_arguments_that_fit_are_accepted(func: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    check_callable_args(func, args, kwargs)


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "text"),
    [
        (plain, [], {}, r"plain\(.*\) also needs 'a'"),
        (plain, [1, 2, 3], {}, "takes 2 positional arguments but 3 are given"),
        (plain, [1], {"a": 1}, "is given a twice"),
        (plain, [1], {"d": 1}, "takes no argument 'd'"),
        (needs_keyword, [], {}, "also needs 'c'"),
        (positional_only, [], {"a": 1, "b": 2}, "takes no argument 'a'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(func: Any, args: list[Any], kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_callable_args(func, args, kwargs)


def test_an_unhashable_callable_can_be_checked() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, a: int) -> None: ...

    check_callable_args(Odd(), [1], {})
    with pytest.raises(ValueError, match="also needs 'a'"):
        check_callable_args(Odd(), [], {})


def test_coroutine_functions_are_seen_through_partials_and_objects() -> None:
    assert iscoroutinefunction_partial(coroutine)
    assert iscoroutinefunction_partial(partial(partial(coroutine)))
    assert iscoroutinefunction_partial(AsyncThing())
    assert not iscoroutinefunction_partial(plain)
    assert not iscoroutinefunction_partial(Thing())


def as_main(monkeypatch: pytest.MonkeyPatch, file: str | None, spec: str | None = None) -> Any:
    """Make a main program of a file or a module, with one function."""
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    main.__spec__ = None if spec is None else ModuleSpec(spec, None)
    exec("def f(): pass", main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


@pytest.mark.parametrize(
    ("file", "spec", "name"),
    [
        ("/srv/report.py", None, "report"),
        ("/srv/jobs/__main__.py", "jobs.__main__", "jobs.__main__"),
        (None, None, "__main__"),
    ],
)
def test_a_function_of_the_main_program_is_named_as_others_would_import_it(
    monkeypatch: pytest.MonkeyPatch, file: str | None, spec: str | None, name: str
) -> None:
    main = as_main(monkeypatch, file, spec)
    assert obj_to_ref(main.f) == f"{name}:f"
    assert ref_to_obj(f"{name}:f") is ref_to_obj("__main__:f") is main.f


def test_a_module_that_has_the_name_of_the_main_program_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    as_main(monkeypatch, "/usr/bin/json")
    assert ref_to_obj("json:dumps") is json.dumps


@pytest.mark.parametrize(("file", "spec"), [("/usr/bin/mainspring", None), ("__main__.py", "mainspring.__main__")])
def test_what_the_main_program_of_another_process_defined_is_not_looked_for_in_the_command_of_mainspring(
    monkeypatch: pytest.MonkeyPatch, file: str, spec: str | None
) -> None:
    as_main(monkeypatch, file, spec)
    with pytest.raises(LookupError, match="in a module of its own"):
        ref_to_obj("__main__:f")
