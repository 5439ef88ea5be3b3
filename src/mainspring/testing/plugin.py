"""The pytest plugin: the fixture `mainspring_kit` is a `Kit` for the app that the setting `mainspring_app` names.

[tool.pytest.ini_options]
mainspring_app = "shop.jobs:app"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mainspring.testing.kit import Kit

__all__ = ["mainspring_kit", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `mainspring_app`."""
    parser.addini("mainspring_app", "the app that the fixture mainspring_kit tests, as MODULE:APP")


@pytest.fixture
def mainspring_kit(pytestconfig: pytest.Config) -> Iterator[Kit]:
    """A `Kit` for the app: in memory, with a clock that only the test moves."""
    # pytest loads this module in every program that has mainspring, so import nothing until a test needs it.
    from mainspring.app.loading.locating import find_app
    from mainspring.testing.kit import Kit

    name = pytestconfig.getini("mainspring_app")
    if not name:
        pytest.fail('say which app to test: mainspring_app = "MODULE:APP" in [tool.pytest.ini_options]', pytrace=False)
    with Kit(find_app(name)) as kit:
        yield kit
