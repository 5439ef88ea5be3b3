"""What is published: the wheel and the source archive, built once, looked at, and used outside of the clone."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import mainspring
from mainspring.errors import install_command

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_the_metadata_is_valid_and_has_what_people_look_for(built: Path) -> None:
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        found = Metadata.from_email(wheel.read(name), validate=True)
    assert (found.name, str(found.version)) == ("mainspring", mainspring.__version__)
    assert found.license_expression == "MIT"
    assert found.license_files == ["LICENSE"]
    assert found.description_content_type == "text/markdown"
    assert found.description
    assert found.summary
    assert "Typing :: Typed" in (found.classifiers or [])
    assert str(found.requires_python) == ">=3.11"


def test_the_wheel_has_all_files_of_the_package_and_no_others(built: Path) -> None:
    package = ROOT / "src" / "mainspring"
    wanted = {
        f"mainspring/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == wanted


def test_the_source_archive_has_what_a_packager_needs_and_no_litter(built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 1}
    assert tops >= {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "src", "tests", "docs", "PKG-INFO"}
    assert not tops & {".venv", ".tools", "build", ".ci", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache"}


def test_the_wheel_works_outside_of_the_clone(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(only(built, "*.whl")) as wheel:
        wheel.extractall(tmp_path / "installed")
    (tmp_path / "shop.py").write_text(
        "import mainspring\n"
        "app = mainspring.Mainspring()\n"
        "@app.task\n"
        "def double(number): return 2 * number\n"
        "if __name__ == '__main__':\n"
        "    with app:\n"
        "        app.start(work=True)\n"
        "        print(double.enqueue(21).result(timeout=30), mainspring.__file__)\n"
    )
    # The packages that it requires come from this environment; of mainspring there is only the wheel's.
    path = os.pathsep.join([str(tmp_path / "installed"), *site.getsitepackages()])
    env = {"PYTHONPATH": path, "PATH": os.environ["PATH"], "MAINSPRING_URL": f"sqlite:///{tmp_path}/jobs.db"}
    for words in (["shop.py"], ["-m", "mainspring", "tasks", "--app", "shop:app"]):
        command = [sys.executable, "-S", *words]  # -S: without the link to the checkout
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        assert "shop:double" in done.stdout or done.stdout.startswith(f"42 {tmp_path}/installed/mainspring/")


def test_all_brings_every_extra_and_an_extra_only_what_it_names() -> None:
    extras = PROJECT["optional-dependencies"]
    assert Requirement(extras["all"][0]).extras == set(extras) - {"all", "dev"}
    core = {Requirement(each).name for each in PROJECT["dependencies"]}
    assert core == {"msgspec", "ormsgpack", "click", "rich", "tzlocal", "SQLAlchemy", "tzdata"}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import mainspring", "asyncio msgspec ormsgpack sqlalchemy click rich multiprocessing concurrent.futures"),
        (
            "from mainspring import Mainspring\n@Mainspring('sqlite:///jobs.db').task\ndef f(x: int): ...",
            "asyncio sqlalchemy click rich redis http ssl tzlocal pydantic opentelemetry sentry_sdk flask starlette",
        ),
        ("import mainspring.cli", "asyncio msgspec sqlalchemy rich"),
        ("import mainspring.testing.plugin", "asyncio msgspec sqlalchemy click"),
    ],
)
def test_an_import_brings_nothing_heavy(code: str, absent: str) -> None:
    program = f"{code}\nimport sys\nprint(*sorted(set({absent.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "mainspring[redis]"'),
        ('{"url": "file:///nowhere", "dir_info": {}}', 'pip install "mainspring[redis]"'),
        ('{"url": "file://FOLDER/a%20b.whl", "archive_info": {}}', 'pip install "FOLDER/a b.whl[redis]"'),
        ('{"url": "file://FOLDER", "dir_info": {"editable": true}}', 'pip install -e "FOLDER[redis]"'),
    ],
)
def test_an_error_names_an_install_that_works(
    origin: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b.whl").touch()
    info = tmp_path / "mainspring-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mainspring\nVersion: 1\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin.replace("FOLDER", str(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install_command("redis") == command.replace("FOLDER", str(tmp_path))
