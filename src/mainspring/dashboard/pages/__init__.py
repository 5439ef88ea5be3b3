"""The pages: one module each, with a `PAGE`. The package's docstring tells how to write one."""

from __future__ import annotations

from typing import Final

from mainspring.dashboard.page import Page
from mainspring.dashboard.pages import more, queues, search

__all__ = ["PAGES"]

PAGES: Final[tuple[Page, ...]] = (
    queues.PAGE,
    more.PAGE,
    search.PAGE,
)
