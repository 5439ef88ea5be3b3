"""More: the pages that a phone's five tabs have no room for."""

from __future__ import annotations

from mainspring.dashboard.page import Page

__all__ = ["PAGE"]

PAGE = Page("/more", "more", "More", "more.html")
