"""The sessions of an interpreter that pages show print what the pages say."""

from __future__ import annotations

import doctest

import pytest

from tests.docs.pages import all_pages, blocks_of


@pytest.mark.parametrize("page", [page for page in all_pages() if blocks_of(page, "pycon")])
def test_the_sessions_of_a_page_print_what_it_shows(page: str) -> None:
    text = "\n".join(block.text for block in blocks_of(page, "pycon"))
    said: list[str] = []
    results = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(text, {}, page, page, 0), out=said.append)
    assert not results.failed, "".join(said)
    assert results.attempted
