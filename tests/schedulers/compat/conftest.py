"""The packages that a program may import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schedulers.compat.kit import Package


@pytest.fixture(params=["apscheduler", "mainspring"])
def package(request: pytest.FixtureRequest) -> Iterator[Package]:
    """Both packages: what is said of one holds for the other."""
    package = Package(request.param)
    yield package
    package.close()


@pytest.fixture
def ours() -> Iterator[Package]:
    """Mainspring alone, where it is better on purpose."""
    package = Package("mainspring")
    yield package
    package.close()
