"""Read the pages of the documentation as blocks: what a reader copies, and what a reader sees.

A block of Python without a title is run, together with the other blocks of its page, in their order. A title that is
a file name (`title="shop.py"`) writes that file. A block titled `excerpt` cannot run by itself: it is compiled, and the
names that it takes from mainspring have to exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXCERPT: Final = "excerpt"
_FENCE: Final = re.compile(
    r'^(?P<indent> *)```(?P<language>\w+)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^(?P=indent)```$', re.S | re.M
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title, its text and the line where it begins."""

    language: str
    title: str
    text: str
    line: int

    @property
    def is_file(self) -> bool:
        """Whether the title names a file that the reader writes into the folder of the program."""
        return re.fullmatch(r"\w[\w./-]*\.\w+", self.title) is not None and ".." not in self.title


def read(page: str) -> str:
    """Return the text of a page: `README.md`, or a page of docs/."""
    return (ROOT / page if page == "README.md" else ROOT / "docs" / page).read_text(encoding="utf-8")


def blocks_of(page: str, language: str | None = None) -> list[Block]:
    """Return the blocks of a page, all of them or those in one language."""
    text = read(page)
    found = (
        Block(
            each["language"],
            each["title"] or "",
            re.sub(rf"^{each['indent']}", "", each["text"], flags=re.M),
            text.count("\n", 0, each.start()) + 1,
        )
        for each in _FENCE.finditer(text)
    )
    return [block for block in found if language in (None, block.language)]


def all_pages() -> list[str]:
    """Return every page that people read: README and docs/, without the decisions, which tell history."""
    docs = ROOT / "docs"
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    return ["README.md", *(page for page in pages if not page.startswith("decisions/"))]


def program_of(page: str) -> str:
    """Return the untitled Python blocks of a page as one program; line numbers are those of the page."""
    lines: list[str] = []
    for block in blocks_of(page, "python"):
        if not block.title:
            lines += [""] * (block.line - len(lines))
            lines += block.text.splitlines()
    return "\n".join(lines) + "\n" if lines else ""


def write_files(page: str, folder: Path) -> None:
    """Write the files that a page shows, the last version of each."""
    for block in blocks_of(page):
        if block.is_file:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
