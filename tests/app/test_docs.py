"""The guide names every option."""

from __future__ import annotations

from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "queue.md"


def test_every_option_is_in_the_guide() -> None:
    from mainspring.app.declaring.task import Options
    from mainspring.core.validation import POLICY_FIELDS

    table = GUIDE.read_text(encoding="utf-8").partition("## Options")[2].partition("## ")[0]
    options = (POLICY_FIELDS | set(Options.__struct_fields__)) - {"policy", "admission"}
    assert [name for name in sorted(options) if f"`{name}`" not in table] == []
