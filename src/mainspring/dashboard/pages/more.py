"""More: the pages that do not fit into a phone's five tabs."""

from __future__ import annotations

from mainspring.dashboard.page import Page

__all__ = ["PAGE"]

PAGE = Page("/more", "more", "More", "more.html")
