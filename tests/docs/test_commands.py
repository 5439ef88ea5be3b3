"""The commands that pages show exist, with their options; the numbers that pages give are those of the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from mainspring import Backoff, cli
from tests.docs.pages import all_pages, blocks_of, read

CALLED = re.compile(r"`mainspring ([a-z][^`]*)`")
LISTED = re.compile(r'\["mainspring", ((?:"[^"]*",?\s*)+)\]')


def commands_of(page: str) -> Iterator[list[str]]:
    """Yield the words of each command in the blocks of a page and in its text."""
    for block in blocks_of(page):
        if block.language in ("console", "ini"):
            text = block.text.replace("\\\n", " ")
            lines = [line for line in text.splitlines() if line.startswith(("$ ", "ExecStart="))]
            for line in lines:
                for part in re.findall(r"(?:^\$ |/|\| |^\$ eval \"\$\()mainspring ([a-z][^|&)]*)", line):
                    yield shlex.split(part, comments=True)
        for words in LISTED.findall(block.text):
            yield re.findall(r'"([^"]*)"', words)
    for words in CALLED.findall(re.sub(r"^```.*?^```$", "", read(page), flags=re.S | re.M)):
        yield words.replace("\n", " ").split()


def complaint(words: list[str]) -> str | None:
    """Return what is wrong with a command: a verb or an option that does not exist."""
    command: click.Command = cli.main
    context = click.Context(cli.main, info_name="mainspring")
    rest = list(words)
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z-]+", rest[0]):
        found = command.get_command(context, rest[0])
        if found is None:
            if "invoke_without_command" in vars(command) and command.invoke_without_command:
                break
            return f"there is no command {' '.join(words)!r}"
        command, rest = found, rest[1:]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}
    given = [word.partition("=")[0] for word in rest if re.fullmatch(r"-[a-zA-Z]|--[a-z][a-z-]*(=.*)?", word)]
    if "--" in rest:
        given = [word for word in given if word in rest[: rest.index("--")]]
    wrong = [word for word in given if word not in options]
    return f"{' '.join(words)!r}: there is no option {wrong[0]}" if wrong else None


@pytest.mark.parametrize("page", all_pages())
def test_the_commands_of_a_page_exist(page: str) -> None:
    assert [said for words in commands_of(page) if (said := complaint(words)) is not None] == []


def test_commands_are_found_at_all() -> None:
    words = list(commands_of("deploying/kubernetes.md"))
    assert ["status", "shop.jobs:app", "--json"] in words
    assert any(each[:2] == ["worker", "shop.jobs:app"] for each in words)
    assert complaint(["runs", "lst"]) is not None
    assert complaint(["worker", "a:b", "--proceses", "2"]) is not None


@pytest.mark.parametrize("page", ["tutorial.md", "triggers.md", "schedules.md"])
def test_what_a_crontab_line_means_is_printed_as_the_page_shows_it(page: str) -> None:
    shown = [
        each
        for block in blocks_of(page, "console")
        for each in re.findall(r"^\$ mainspring (cron .*)\n([^$]*)", block.text, re.M)
    ]
    assert shown
    for command, output in shown:
        assert CliRunner().invoke(cli.main, shlex.split(command), catch_exceptions=False).output == output


def test_the_waits_of_the_default_back_off_are_those_of_the_page() -> None:
    rows = {
        name: values.split(" | ")
        for name, values in re.findall(
            r"^\| (after failure|waits at most|and at least) \| (.*) \|$", read("retries.md"), re.M
        )
    }
    for failure, most, least in zip(
        *(rows[name] for name in ("after failure", "waits at most", "and at least")), strict=True
    ):
        number = int(failure.split()[0])
        assert Backoff().delay(number, 0) == float(most.removesuffix(" s"))
        assert Backoff().delay(number, 1) == float(least.removesuffix(" s"))
