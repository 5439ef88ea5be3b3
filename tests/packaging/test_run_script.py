from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import run


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "constraints.txt").write_text("uv==1.0\n")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_one.py").touch()
    return tmp_path


def test_what_follows_two_dashes_goes_to_pytest() -> None:
    options = run.parse(["test", "--strict", "--only", "unit", "--", "-x", "--python", "no"])

    assert (options.verb, options.strict, options.only, options.python) == ("test", True, "unit", "")
    assert options.rest == ["-x", "--python", "no"]


def test_a_benchmark_gets_its_own_arguments() -> None:
    options = run.parse(["bench", "triggers", "--count", "5"])

    assert (options.name, options.arguments) == ("triggers", ["--count", "5"])


@pytest.mark.parametrize("verb", ["simulate", "chaos"])
def test_a_verb_that_reads_its_own_arguments_gets_them_all(verb: str) -> None:
    options = run.parse([verb, "--seed", "5", "--", "--more"])

    assert (options.verb, options.arguments, options.rest) == (verb, ["--seed", "5"], ["--more"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tset"], "unknown verb 'tset', did you mean 'test'?"),
        (["frobnicate"], "There are: demo, test, lint, bench, simulate, chaos, servers, docs, setup, pythons"),
        (["test", "--stict"], "unknown argument '--stict', did you mean '--strict'?"),
        (["lint", "--", "--fix"], "unknown argument '--fix'"),
        (["test", "--only"], "--only: expected one argument"),
        ([], "required: VERB"),
    ],
)
def test_a_slip_on_the_command_line_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run.parse(arguments)

    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        (None, ["tests"]),
        ("unit", ["tests/unit"]),
        ("unit/test_one.py", ["tests/unit/test_one.py"]),
        ("tests/unit/test_one.py::test_a", ["tests/unit/test_one.py::test_a"]),
        ("cron and not jitter", ["tests", "-k", "cron and not jitter"]),
    ],
)
def test_only_picks_a_folder_a_file_or_an_expression(only: str | None, chosen: list[str], repository: Path) -> None:
    assert run.selection(only, repository) == chosen


def test_a_step_is_done_once_for_the_same_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []
    for key in ("a", "a", "b"):
        run.once(tmp_path / "stamp", key, "a step", partial(done.append, key))

    assert done == ["a", "b"]
    assert capsys.readouterr().out.count(" s] a step\n") == 2


def test_a_step_that_failed_is_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise run.Failed("no network")

    with pytest.raises(run.Failed):
        run.once(tmp_path / "stamp", "a", "a step", fail)

    assert not run.is_done(tmp_path / "stamp", "a")
    assert "[ failed] a step" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_ask_for_a_new_set_up(name: str, repository: Path) -> None:
    before = run.setup_key("3.11.2", repository)

    (repository / name).write_text("changed\n")

    assert run.setup_key("3.11.2", repository) != before


def test_another_interpreter_or_place_asks_for_a_new_set_up(repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        (copy / name).write_bytes((repository / name).read_bytes())

    keys = {run.setup_key("3.11.2", repository), run.setup_key("3.12.1", repository), run.setup_key("3.11.2", copy)}

    assert len(keys) == 3


def test_what_is_installed_for_development_serves_the_demo_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[str] = []

    def create(environment: run.Environment, uv: Path | None) -> None:
        steps.append("create")
        environment.python.parent.mkdir(parents=True)
        environment.python.symlink_to(sys.executable)

    monkeypatch.setattr(run, "get_uv", lambda: None)
    monkeypatch.setattr(run, "create", create)
    monkeypatch.setattr(run, "install", lambda environment, uv, what: steps.append(what))
    environment = run.Environment(tmp_path / ".venv", sys.executable, "{}.{}.{}".format(*sys.version_info))

    for extra in (run.CORE, run.CORE, "dev", run.CORE, "dev"):
        run.set_up(environment, extra)

    assert steps == ["create", ".", ".[dev]"]


def test_an_environment_of_another_python_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    environment = run.Environment(tmp_path, "/usr/bin/python3.99", "3.99.0")
    monkeypatch.setattr(run, "version_of", lambda python: "3.11.2")
    monkeypatch.setattr(run, "get_uv", lambda: None)
    monkeypatch.setattr(run, "create", lambda environment, uv: made.append(environment.version))
    monkeypatch.setattr(run, "install", lambda environment, uv, what: None)

    run.set_up(environment, run.CORE)

    assert made == ["3.99.0"]


def test_another_active_environment_does_not_leak_into_a_child() -> None:
    active = {"PATH": "/elsewhere/bin", "VIRTUAL_ENV": "/elsewhere", "PYTHONPATH": "/elsewhere/lib", "LANG": "C"}
    environment = run.Environment(Path("/here/.venv"), sys.executable, "3.11.2")

    seen = run.child_environ(active, environment)

    assert not {"VIRTUAL_ENV", "PYTHONPATH"} & seen.keys()
    assert (seen["LANG"], seen["PYTHONNOUSERSITE"], seen["UV_PYTHON_DOWNLOADS"]) == ("C", "1", "never")
    assert seen["PATH"] == f"/here/.venv/bin{os.pathsep}/elsewhere/bin"


def test_a_python_that_is_not_there_is_named_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_pythons", lambda: {"3.11.2": "/usr/bin/python3", "3.13.0": "/opt/python3.13"})

    assert run.choose_environment("3.13").interpreter == "/opt/python3.13"
    with pytest.raises(run.Failed, match=r"no Python 3\.1 was found on this machine, only 3\.11\.2, 3\.13\.0"):
        run.choose_environment("3.1")


def test_a_failed_command_tells_what_it_said() -> None:
    with pytest.raises(run.Failed, match=r"ended with 3:\nthe reason"):
        run.call(sys.executable, "-c", "import sys; print('the reason'); sys.exit(3)")


@pytest.mark.parametrize("root", [True, False])
def test_only_root_installs_what_is_missing(
    root: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = ["postgresql"]
    monkeypatch.setattr(run, "missing_packages", lambda environment: list(missing))
    monkeypatch.setattr(run, "apt_install", lambda packages: missing.clear())
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    environment = run.Environment(Path("/here/.venv"), sys.executable, "3.11.2")

    run.set_up_system(environment, strict=False)

    assert missing == ([] if root else ["postgresql"])
    assert ("sudo apt-get install postgresql" in capsys.readouterr().out) is not root


def test_strict_refuses_to_go_on_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "missing_packages", lambda environment: ["mariadb-server"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    environment = run.Environment(Path("/here/.venv"), sys.executable, "3.11.2")

    with pytest.raises(run.Failed, match="mariadb-server"):
        run.set_up_system(environment, strict=True)


@pytest.mark.parametrize(
    ("cache", "failed"), [(None, []), ("not JSON", []), ("{}", []), ('{"tests/a.py::b": true}', ["tests/a.py::b"])]
)
def test_which_tests_failed_last_is_read_from_the_cache_of_pytest(
    tmp_path: Path, cache: str | None, failed: list[str]
) -> None:
    if cache is not None:
        (tmp_path / "lastfailed").write_text(cache)
    assert run.last_failed(tmp_path / "lastfailed") == failed


@pytest.mark.parametrize("processes", ["0", "2"])
def test_an_error_before_or_after_a_test_counts_as_its_failure(processes: str, tmp_path: Path) -> None:
    """So `--again` runs that test again, too."""
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef early(): assert False\n"
        "@pytest.fixture\ndef late():\n    yield\n    assert False\n"
        "def test_early(early): ...\ndef test_late(late): ...\ndef test_good(): ...\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "-pxdist.plugin", "-n", processes]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    cache = tmp_path / run.LAST_FAILED.relative_to(run.ROOT)
    assert run.last_failed(cache) == ["test_it.py::test_early", "test_it.py::test_late"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], False),
        (["-x", "--lf"], False),
        (["-k", "cron"], False),
        (["tests/unit", "-q"], True),
        (["tests/unit/test_one.py::test_a"], True),
    ],
)
def test_a_path_among_the_arguments_of_pytest_is_all_that_is_tested(
    words: list[str], named: bool, repository: Path
) -> None:
    assert run.names_a_test(words, repository) is named


def test_what_run_py_starts_can_be_interrupted_even_if_run_py_was_started_in_the_background() -> None:
    """A shell starts `command &` with SIGINT ignored, and every child would inherit that."""
    code = (
        "import signal, subprocess, sys; sys.path.insert(0, sys.argv[1]);"
        "signal.signal(signal.SIGINT, signal.SIG_IGN); import run;"
        "show = 'import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)';"
        "run.VERBS['setup'] = lambda options: subprocess.call([sys.executable, '-c', show]);"
        "run.main(['setup'])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run.ROOT)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_only_ci_runs_a_failed_test_again() -> None:
    assert run.parse(["test"]).again is False
    assert "test --strict --again" in (run.ROOT / ".ci" / "run").read_text()
