"""The command line in real processes: on a terminal, through pipes, with a module of the user's own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.kit import KEY, LIMIT, Shop

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a terminal of Unix")


def environment(shop: Shop, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "MAINSPRING_APP")}
    return {**kept, "MAINSPRING_URL": shop.url, "MAINSPRING_SECRET_KEY": KEY, "TERM": "xterm", **more}


def on_terminal(shop: Shop, *words: str, columns: int = 100, answer: str = "", **more: str) -> tuple[int, str]:
    """Call a command in a terminal of so many columns; return its code and all it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "mainspring", *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(shop, **more)
    ) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        said = b""
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # how Linux says that nobody holds the other end
                break
            if not part:
                break
            said += part
        os.close(ours)
        return process.wait(60), said.decode().replace("\r\n", "\n")


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_terminal_gets_colours_and_lines_that_fit(shop: Shop) -> None:
    code, said = on_terminal(shop, "runs", "list", columns=100)
    assert code == 0
    assert "\x1b[31mfailed\x1b[0m" in said
    lines = without_colours(said).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(shop.ids["bob"] in line and "…" in line for line in lines)


def test_status_fits_a_terminal_and_is_whole_in_a_pipe(shop: Shop) -> None:
    shop.resize.options(queue="a-queue-with-a-rather-long-name-" * 3).enqueue("a.png")
    code, said = on_terminal(shop, "status", columns=80)
    assert (code, "…" in said) == (0, True)
    assert max(map(len, without_colours(said).splitlines())) <= 80
    command = [sys.executable, "-m", "mainspring", "status"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(shop), timeout=60)
    assert "a-queue-with-a-rather-long-name-" * 3 in done.stdout


def test_no_color_is_honoured(shop: Shop) -> None:
    code, said = on_terminal(shop, "runs", "list", NO_COLOR="1")
    assert (code, "\x1b[" in said) == (0, False)


def test_a_narrow_terminal_gets_a_block_for_each_run_with_the_whole_id(shop: Shop) -> None:
    code, said = on_terminal(shop, "runs", "list", "status:failed", columns=45)
    assert code == 0
    assert f"id      {shop.ids['bob']}" in without_colours(said).splitlines()


def test_a_narrow_terminal_shows_the_health_of_jobs_and_drops_the_date_of_the_next_fire(shop: Shop) -> None:
    shop.app.add_job(shop.resize, "interval", minutes=5, id="a_job_with_quite_a_long_name", args=["a.png"])
    code, said = on_terminal(shop, "jobs", "list", columns=64)
    title, line = without_colours(said).splitlines()[:2]
    assert (code, title.split()) == (0, ["id", "health", "when"])
    assert "  down " in line
    assert len(line) <= 64


def test_a_person_is_asked_before_many_runs_are_changed_and_sees_the_progress(shop: Shop) -> None:
    code, said = on_terminal(shop, "runs", "delete", "queue:mail", answer="n\n")
    assert (code, "3 runs will be deleted. Go on? [y/N]" in said) == (1, True)
    assert set(shop.statuses()) == set(shop.ids)
    code, said = on_terminal(shop, "runs", "delete", "queue:mail", answer="y\n")
    assert (code, "100%" in said, "deleted 3 runs" in said) == (0, True, True)
    assert set(shop.statuses()) == {"cat", "dog"}


def test_a_queue_is_purged_when_its_name_is_typed(shop: Shop) -> None:
    code, said = on_terminal(shop, "queues", "purge", "default", answer="defualt\n")
    assert (code, "that is not its name; nothing was done" in said) == (1, True)
    assert shop.statuses()["cat"] == "pending"
    code, said = on_terminal(shop, "queues", "purge", "default", answer="default\n")
    assert (code, "cancelled 2 of default" in said) == (0, True)


def test_a_pipe_gets_whole_plain_lines_and_may_be_closed_early(shop: Shop) -> None:
    command = [sys.executable, "-m", "mainspring", "runs", "list"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(shop, COLUMNS="40"), timeout=60)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 6)
    assert "\x1b[" not in done.stdout
    assert "TimeoutError: mail.example.com did not answer" in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    closed = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment(shop), timeout=60)
    os.close(writer)
    assert (closed.returncode, closed.stderr) == (1, b"")


def test_the_demo_on_a_terminal_has_colours_and_a_table_that_fits(shop: Shop) -> None:
    code, said = on_terminal(shop, "demo", "--seconds", "1", columns=80)
    assert code == 0
    assert re.search(r"\x1b\[33m\S+ WARNING ask_bank", said)
    summary = without_colours(said).partition("\nwhat ")[2].partition("\n\n")[0]
    assert max(map(len, summary.splitlines())) <= 80


def test_the_error_of_a_users_module_shows_the_users_frames_only(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("def read():\n    return {}['region']\n")
    (tmp_path / "broken_shop.py").write_text("import settings\nsettings.read()\n")
    done = subprocess.run(
        [sys.executable, "-m", "mainspring", "runs", "list", "--app", "broken_shop:app"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(shop), timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("Error: broken_shop:app cannot be imported:\n")
    assert re.findall(r'File ".*/(\w+\.py)"', done.stderr) == ["broken_shop.py", "settings.py"]
    assert done.stderr.endswith("KeyError: 'region'\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_ends_with_a_sentence_and_1(shop: Shop) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "mainspring", "runs", "list"], stdout=full, stderr=subprocess.PIPE, text=True,
            env=environment(shop), timeout=LIMIT, check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (1, "Error: the output cannot be written: No space left on device\n")
