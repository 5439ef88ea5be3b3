"""The page about the API: its endpoints, and how to call it."""

from __future__ import annotations

from typing import Any

from mainspring.dashboard.api.endpoints import ENDPOINTS, ROOT
from mainspring.dashboard.page import Page, View

__all__ = ["PAGE"]


def read(view: View) -> dict[str, Any]:
    """List the endpoints."""
    return {"endpoints": ENDPOINTS, "base": ROOT}


PAGE = Page("/api", "system", "API", "fleet/api.html", read)
