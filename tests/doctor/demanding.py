"""An app that wants more than its store gives."""

from __future__ import annotations

from mainspring import Mainspring

app = Mainspring("memory://", require="durable")
