"""Every block of Python in the documentation is run, or at least compiled, with the names that it takes from us."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.names import complaints
from tests.docs.pages import EXCERPT, ROOT, all_pages, blocks_of, program_of, read, write_files
from tests.docs.setting import ELSEWHERE, PRINTED, SETTING
from tests.docs.transcript import Transcript

RUN = [page for page in all_pages() if page not in ELSEWHERE and program_of(page)]
PLAYED = ["README.md", "index.md", "tutorial.md", "layout.md", "keys.md"]
"""The pages whose commands are executed, and whose output is compared with what is printed."""


@pytest.mark.parametrize("page", all_pages())
def test_every_block_compiles_and_names_only_what_exists(page: str) -> None:
    found = [said for block in blocks_of(page, "python") for said in complaints(block.text, block.line)]
    assert found == []


@pytest.mark.parametrize("page", all_pages())
def test_a_block_is_run_or_says_that_it_is_an_excerpt(page: str) -> None:
    text = read(page)
    assert len(re.findall(r"^ *```\w", text, re.M)) == len(blocks_of(page)), "a fence that the tests cannot read"
    strange = [block.title for block in blocks_of(page, "python") if block.title not in ("", EXCERPT)]
    assert [title for title in strange if not re.fullmatch(r"[\w./]+\.py", title)] == []


@pytest.mark.parametrize("part", [0, 1])
def test_the_blocks_of_each_page_run_in_order(part: int, tmp_path: Path) -> None:
    folders = {page: tmp_path / page.removesuffix(".md") for page in RUN[part::2]}
    for page, folder in folders.items():
        folder.mkdir(parents=True)
        write_files(page, folder)
        setting = SETTING.get(page)
        # In front of the first line, so that the line numbers of a traceback are those of the page.
        before = "" if setting is None else f"exec({setting!r}); "
        (folder / "page.py").write_text(before + program_of(page), encoding="utf-8")
    command = [sys.executable, "-m", "tests.docs.running", *map(str, folders.values())]
    subprocess.run(command, cwd=ROOT, check=True, timeout=110)
    failed = {page: (folder / "err").read_text() for page, folder in folders.items() if _code(folder) != "0"}
    assert failed == {}, "\n".join(f"{page}:\n{said}" for page, said in failed.items())
    silent = {
        page: line
        for page, folder in folders.items()
        for line in PRINTED.get(page, ())
        if line not in (folder / "out").read_text()
    }
    assert silent == {}
    assert not [page for page, folder in folders.items() if "s3cret" in (folder / "out").read_text()]


def _code(folder: Path) -> str:
    code = folder / "code"
    return code.read_text() if code.exists() else "it did not end"


@pytest.mark.timeout(300)  # a page starts up to a dozen programs, one after another
@pytest.mark.parametrize("page", PLAYED)
def test_the_commands_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    assert Transcript(tmp_path).play(page) > 0
