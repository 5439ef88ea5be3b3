"""The examples of the documentation do what it says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["time.md", "triggers.md", "schedules.md"])
def test_the_examples_of_a_page_print_what_it_shows(page: str) -> None:
    blocks = re.findall(r"^```pycon\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    said: list[str] = []
    results = doctest.DocTestRunner().run(test, out=said.append)
    assert not results.failed, "".join(said)
    assert results.attempted > 5
