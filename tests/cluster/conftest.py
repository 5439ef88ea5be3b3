"""A yard for every test of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kit import Yard, yard_in


@pytest.fixture
def make_yard(tmp_path: Path) -> Iterator[Callable[..., Yard]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(yard_in(tmp_path, **options))


@pytest.fixture
def yard(make_yard: Callable[..., Any]) -> Yard:
    found: Yard = make_yard()
    return found
