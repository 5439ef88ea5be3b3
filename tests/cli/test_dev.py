"""`init`, `dev` and `completion`, as a person uses them: from a new folder, on a terminal and through pipes."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.cli.dev import Files
from tests.cli.kit import KEY
from tests.servers import Redis

LIMIT = 90.0


def call(*words: str, **env: str) -> tuple[int, str]:
    found = CliRunner(env={"MAINSPRING_APP": None, "MAINSPRING_URL": None, **env}).invoke(main, list(words))
    return found.exit_code, found.output


class Screen:
    """A command on a terminal of its own, and what it has written there so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mainspring", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True,
            env={**env, "TERM": "xterm", "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def wait_for(self, pattern: str, after: int = 0) -> str:
        """Wait until something is on the screen."""
        deadline = time.monotonic() + LIMIT
        while not (found := re.search(pattern, self.text[after:])):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.text}"
            self.read()
        return found[0]

    def read(self) -> None:
        """Read what there is."""
        if select.select([self._ours], [], [], 0.2)[0]:
            with suppress(OSError):  # how Linux says that nobody holds the other end
                self.text += os.read(self._ours, 65_536).decode().replace("\r\n", "\n")

    def interrupt(self) -> int:
        """Press Ctrl-C, as a terminal passes it on: to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.end()

    def end(self) -> int:
        """Wait for the end of the command; return its exit code."""
        deadline = time.monotonic() + LIMIT
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self.read()
        self.read()
        return self.process.returncode

    def close(self) -> None:
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.close()


def test_from_a_new_folder_a_scheduled_job_runs_and_is_seen_to(tmp_path: Path, screens: list[Screen]) -> None:
    subprocess.run([sys.executable, "-m", "mainspring", "init"], cwd=tmp_path, check=True, timeout=60)
    screen = Screen(tmp_path, "dev", "app.py")
    screens.append(screen)
    screen.wait_for(r"mainspring \S+: store sqlite:///jobs.db; queues default; 2 tasks, 1 declared schedule")
    screen.wait_for(r"greet\(\) app:greet@\S+ succeeded in")
    screen.wait_for(r"send_mail\('ann@example.com'\) \w+ succeeded in")
    assert screen.interrupt() == 0
    assert "dev     stopped" in screen.text
    assert "Traceback" not in screen.text


def test_a_change_starts_it_again_and_an_error_waits_for_the_next_change(tmp_path: Path, screens: list[Screen]) -> None:
    CliRunner().invoke(main, ["init", str(tmp_path / "app.py")])
    file = tmp_path / "app.py"
    good = file.read_text()
    screen = Screen(tmp_path, "dev", "app.py")
    screens.append(screen)
    screen.wait_for(r"mainspring \S+: store")

    file.write_text(f"{good}\ndef broken(:\n")
    screen.wait_for(r"app.py changed; starting again")
    screen.wait_for(r"waiting for a change")
    assert "Error: app.py cannot be imported:" in screen.text
    assert re.findall(r'File ".*/(\w+\.py)", line (\d+)', screen.text) == [("app.py", "14")]
    assert "SyntaxError" in screen.text

    seen = len(screen.text)
    file.write_text(good.replace("greet", "welcome"))
    screen.wait_for(r"app.py changed; starting again", seen)
    screen.wait_for(r"welcome\(\) app:welcome@\S+ succeeded in", seen)
    assert screen.interrupt() == 0


def test_ctrl_c_ends_it_while_it_waits_for_a_change(tmp_path: Path, screens: list[Screen]) -> None:
    (tmp_path / "app.py").write_text("1 / 0\n")
    screen = Screen(tmp_path, "dev", "app.py")
    screens.append(screen)
    screen.wait_for(r"ZeroDivisionError")
    screen.wait_for(r"waiting for a change")
    assert screen.interrupt() == 1


def test_a_second_ctrl_c_does_not_wait_for_started_runs(tmp_path: Path, screens: list[Screen]) -> None:
    write_app(tmp_path, "sqlite:///jobs.db")
    with (tmp_path / "app.py").open("a") as file:
        file.write(
            "import time\n"
            "@app.schedule('interval', seconds=1)\n"
            f"def slow():\n    print('asleep', flush=True)\n    time.sleep({10 * LIMIT})\n"
        )
    screen = Screen(tmp_path, "dev", "app.py")
    screens.append(screen)
    screen.wait_for(r"asleep")
    os.killpg(screen.process.pid, signal.SIGINT)
    screen.wait_for(r"waiting up to 10 s for started runs to end; a second Ctrl-C kills them")
    assert screen.interrupt() == 0
    # The second Ctrl-C reaches both: the process ends by itself, or is killed by who was first to see it.
    ends = ("killing the started runs; they are executed again later", "stopping now: other workers take over the runs")
    assert any(text in screen.text for text in ends)


def test_sigterm_through_a_pipe_ends_it_in_order(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["init", str(tmp_path / "app.py")])
    command = [sys.executable, "-m", "mainspring", "dev", "app.py", "--no-reload"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(4)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert any("mainspring" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def write_app(folder: Path, url: str) -> None:
    (folder / "app.py").write_text(
        "from mainspring import Mainspring\n"
        f"app = Mainspring({url!r}, name='dev{time.time_ns()}', secret_key={KEY!r})\n"
        "@app.schedule('interval', seconds=1)\ndef tick(): return 'tock'\n"
    )


def test_it_works_on_a_server_as_well(tmp_path: Path, screens: list[Screen], redis_server: Redis) -> None:
    write_app(tmp_path, redis_server.url)
    screen = Screen(tmp_path, "dev", "app:app", "--threads", "2")
    screens.append(screen)
    screen.wait_for(r"tick\(\) app:tick@\S+ succeeded in")
    assert screen.interrupt() == 0


def test_a_store_that_does_not_answer_ends_with_its_own_code_and_the_next_command(tmp_path: Path) -> None:
    write_app(tmp_path, "redis://localhost:1/0")
    command = [sys.executable, "-m", "mainspring", "dev", "app.py", "--no-reload"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 3
    assert "does not answer" in done.stderr
    assert done.stderr.endswith("Try: mainspring doctor --app app.py\n")


def test_dev_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("dev", "app.py") == (1, "Error: there is no file 'app.py'\nTry: mainspring init app.py\n")
    code, text = call("dev")
    assert (code, "MAINSPRING_APP" in text) == (2, True)


def test_init_writes_twelve_lines_and_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("init") == (0, "wrote app.py\nTry: mainspring dev app.py\n")
    written = (tmp_path / "app.py").read_text()
    assert len(written.splitlines()) == 12
    compile(written, "app.py", "exec")

    (tmp_path / "app.py").write_text("mine")
    code, text = call("init")
    assert (code, text) == (1, "Error: 'app.py' is there already and was left as it is\nTry: mainspring dev app.py\n")
    assert (tmp_path / "app.py").read_text() == "mine"


def test_init_refuses_names_that_cannot_be_imported_and_folders_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("init", "my-app.py")[0] == 2
    assert call("init", "app.txt")[0] == 2
    assert call("init", "nowhere/app.py") == (
        1,
        "Error: 'nowhere/app.py' cannot be written: No such file or directory\n",
    )


def test_changes_below_the_folder_are_seen_and_others_are_not(tmp_path: Path) -> None:
    for name in ("app.py", "shop/tasks.py", ".venv/x.py", "venv2/lib/x.py", "__pycache__/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "venv2" / "pyvenv.cfg").write_text("")
    files = Files(tmp_path)
    assert (len(files), files.changed()) == (2, [])

    (tmp_path / "app.py").write_text("x = 1")
    (tmp_path / "shop" / "tasks.py").unlink()
    (tmp_path / "shop" / "new.py").write_text("")
    (tmp_path / ".venv" / "x.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("")
    assert files.changed() == ["app.py", "shop/new.py", "shop/tasks.py"]
    assert files.changed() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_completes(shell: str) -> None:
    code, text = call("completion", shell)
    assert code == 0
    assert f"_MAINSPRING_COMPLETE={shell}_complete" in text


def test_another_shell_is_a_wrong_command() -> None:
    code, text = call("completion", "tcsh")
    assert (code, "'bash', 'fish', 'zsh'" in text) == (2, True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_verb(tmp_path: Path) -> None:
    """The script is read by a real bash; the words come from a real mainspring."""
    program = tmp_path / "mainspring"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mainspring "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(mainspring completion bash)"; COMP_WORDS=(mainspring cro); COMP_CWORD=1;'
        ' _mainspring_completion mainspring; echo "${COMPREPLY[@]}"'
    )
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, timeout=LIMIT)
    assert done.stdout.split() == ["cron"], done.stderr
