"""The contract of a store stays small, said in a line each, and told in full by its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mainspring.jobstores.base import JobStore

MOST = 22
CONTRACT = sorted(JobStore.__abstractmethods__)
PAGE = Path(__file__).parents[2] / "docs" / "writing-a-store.md"


def test_a_store_has_few_methods_to_write() -> None:
    assert len(CONTRACT) <= MOST
    assert not {"start", "shutdown"} & {*CONTRACT}


@pytest.mark.parametrize("name", CONTRACT)
def test_each_method_says_in_its_first_line_what_it_does(name: str) -> None:
    first, _, rest = (getattr(JobStore, name).__doc__ or "").partition("\n")
    assert first.endswith("."), f"{name} needs a first line that is a sentence"
    assert not rest or rest.startswith("\n"), f"the first line of {name} goes on in the next"


def test_the_page_on_writing_a_store_lists_every_method_and_no_other() -> None:
    told = PAGE.read_text().partition("You get APScheduler's verbs")[0]
    assert sorted(re.findall(r"^\| `(\w+)\(", told, re.M)) == CONTRACT
    assert f"has {len(CONTRACT)} abstract methods" in told
