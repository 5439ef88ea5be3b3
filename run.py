#!/usr/bin/env python3
"""Run anything in this repository: `python3 run.py VERB` sets up what the verb needs, once, then does it.

Needs Python 3.11 with pip, nothing else. What it makes is in .venv, .tools and build; delete them to start afresh.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
TOOLS = ROOT / ".tools"
REQLITE = "reqlite@2.3.0"
CONSTRAINTS = ROOT / "constraints.txt"
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
OLDEST = (3, 11)
MOST_PROCESSES = 4  # each starts a server of every kind, and more of them only wait for each other
FEW_FAILED = 12  # up to this many failed tests may be the machine's doing: `--again` runs them once more, alone
APT_LOCK_SECONDS = 300  # another checkout, or the system's own upgrade, may be installing packages
CORE = "core"  # not an extra: mainspring as a user gets it

SERVICES = {
    "redis-server": "redis-server",
    "postgresql": "postgresql",
    "mariadb-server": "mariadb",
    "pgbouncer": "pgbouncer",
    "etcd-server": "etcd",
}
# Chromium, too, is installed with them (see tests/servers.py), but is no service.
QT_PACKAGES = ["libegl1", "libgl1", "libxkbcommon0", "libdbus-1-3", "libfontconfig1", "libglib2.0-0"]

# Variables by which another active environment, or a user's habits with pip, would leak in.
FOREIGN = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"}
FOREIGN |= {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV"}
OURS = {"PYTHONNOUSERSITE": "1", "UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
# For uv: trust whom the system trusts; and since some proxies stall when it opens its usual fifty connections, open
# few, and ask again soon rather than after 30 s.
DEFAULTS = {"UV_SYSTEM_CERTS": "1", "UV_CONCURRENT_DOWNLOADS": "8", "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "8"}
DEFAULTS |= {"NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt"}  # npm, too, trusts whom the system trusts


class Failed(Exception):
    """Something a person has to put right; the text says what."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment and the interpreter it is made from."""

    folder: Path
    interpreter: str
    version: str

    @property
    def python(self) -> Path:
        """The environment's own interpreter."""
        return self.folder / "bin" / "python"

    def stamp(self, name: str) -> Path:
        """Return the file that remembers for which inputs a step was done."""
        return self.folder / f".mainspring-{name}"


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Print the title of a step with the time it took."""
    begun = time.monotonic()
    if sys.stdout.isatty():
        print(f"[  ...  ] {title}", end="\r", flush=True)
    try:
        yield
    except BaseException:
        print(f"[ failed] {title}", flush=True)
        raise
    print(f"[{time.monotonic() - begun:5.1f} s] {title}", flush=True)


def is_done(stamp: Path, key: str) -> bool:
    """Tell whether a step was done for this key."""
    return stamp.is_file() and stamp.read_text() == key


def once(stamp: Path, key: str, title: str, action: Callable[[], object]) -> None:
    """Do a step unless its stamp says that it was done for this key."""
    if not is_done(stamp, key):
        with step(title):
            action()
        stamp.write_text(key)


def setup_key(version: str, root: Path = ROOT) -> str:
    """Return what an installation depends on: the requirements, the interpreter, the place."""
    digest = hashlib.sha256(f"{version}\n{root}\n".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


def child_environ(environ: Mapping[str, str], environment: Environment | None = None) -> dict[str, str]:
    """Return the variables for a child, which sees our environment and no other."""
    clean = DEFAULTS | {name: value for name, value in environ.items() if name not in FOREIGN} | OURS
    if environment is not None:
        clean["PATH"] = os.pathsep.join([str(environment.python.parent), clean.get("PATH", os.defpath)])
    return clean


def call(*command: str | Path, **variables: str) -> str:
    """Run a command quietly and return what it said; if it fails, raise `Failed` with that."""
    words = [str(word) for word in command]
    environ = child_environ(os.environ) | variables
    try:
        done = subprocess.run(words, cwd=ROOT, env=environ, input=b"", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise Failed(f"{words[0]} cannot be run: {error.strerror}") from error
    said = done.stdout.decode(errors="replace").strip()
    if done.returncode:
        raise Failed(f"`{' '.join(words)}` ended with {done.returncode}:\n{said}")
    return said


def run_on(environment: Environment, *command: str, **variables: str) -> int:
    """Run Python with this command to its end, and return its exit code; Ctrl-C reaches it as it reaches us."""
    environ = child_environ(os.environ, environment) | variables
    child = subprocess.Popen([str(environment.python), *command], cwd=ROOT, env=environ)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue


def hand_over(environment: Environment, *command: str, **variables: str) -> NoReturn:
    """Become Python with this command: its signals, its output, its exit code."""
    words = [str(environment.python), *command]
    environ = child_environ(os.environ, environment) | variables
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(words[0], words, environ)


def version_of(python: str | Path) -> str:
    """Return the version of an interpreter, empty if it does not work."""
    try:
        return call(python, "-c", "import platform; print(platform.python_version())")
    except Failed:
        return ""


def minor(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def find_pythons() -> dict[str, str]:
    """Return the interpreters of this machine that are new enough, by version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    names = ["python3", *(f"python3.{number}" for number in range(OLDEST[1], OLDEST[1] + 10))]
    paths = [sys.executable, *map(shutil.which, names), *map(str, sorted(pyenv.glob("versions/*/bin/python3")))]
    found: dict[str, str] = {}
    for path in dict.fromkeys(filter(None, paths)):
        version = version_of(path)
        if minor(version) >= OLDEST:
            found.setdefault(version, path)
    return found


def choose_environment(wanted: str) -> Environment:
    """Return the environment for `--python X.Y`, or for the interpreter that runs this file."""
    if not wanted:
        return Environment(ROOT / ".venv", sys.executable, platform.python_version())
    found = find_pythons()
    for version, path in found.items():
        if f"{version}.".startswith(f"{wanted}."):
            return Environment(ROOT / f".venv-{wanted}", path, version)
    raise Failed(f"no Python {wanted} was found on this machine, only {', '.join(sorted(found, key=minor))}")


def set_up(environment: Environment, extra: str) -> None:
    """Make the environment and install mainspring into it, as far as that was not done."""
    version = version_of(environment.python)
    kept = minor(version) == minor(environment.version)
    key = setup_key(version if kept else environment.version)
    # What was installed for development serves the demo too.
    if kept and any(is_done(environment.stamp(name), key) for name in {extra, "dev"}):
        return
    uv = get_uv()
    if not kept:
        with step(f"create {environment.folder.name} with Python {environment.version}"):
            create(environment, uv)
    what = f".[{extra}]" if extra != CORE else "."
    stamp = environment.stamp(extra)
    once(stamp, key, f"install {what} into {environment.folder.name}", lambda: install(environment, uv, what))


def get_uv() -> Path | None:
    """Install uv, which is many times quicker than pip; None if it cannot be had."""
    folder = TOOLS / "uv"
    pin = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("uv=="))
    pip = (sys.executable, "-m", "pip", "install", "--root-user-action=ignore", "--upgrade", "--target", folder, pin)
    try:
        once(folder / ".stamp", f"{pin} {sys.platform}", f"install {pin}", lambda: call(*pip))
    except Failed as failure:
        print(f"{failure}\nSo it has to be pip.", flush=True)
    uv = folder / "bin" / "uv"
    return uv if uv.exists() else None


def create(environment: Environment, uv: Path | None) -> None:
    """Make an empty virtual environment."""
    python = environment.interpreter
    venv = (uv, "venv", "--no-project", "--python", python) if uv else (python, "-m", "venv")
    try:
        call(*venv, "--clear", environment.folder)
    except Failed:
        shutil.rmtree(environment.folder, ignore_errors=True)  # half of one would be taken for a whole
        raise


def install(environment: Environment, uv: Path | None, what: str, *, editable: bool = True) -> None:
    """Install mainspring with uv or else with pip."""
    options: list[str | Path] = ["install", "-c", CONSTRAINTS, *(["-e"] if editable else []), what]
    if uv is not None:
        try:
            call(uv, "pip", *options, "--python", environment.python)
            return
        except Failed as failure:
            print(f"{failure}\nSo it has to be pip.", flush=True)
    # An environment made by uv has no pip of its own, so lend it ours if we have one.
    ours = importlib.util.find_spec("pip") is not None
    pip = (sys.executable, "-m", "pip", "--python", environment.python) if ours else (environment.python, "-m", "pip")
    call(*pip, *options)


def set_up_system(environment: Environment, *, strict: bool) -> None:
    """Install the servers and libraries that the tests need; without the right to, say which are missing."""
    missing = missing_packages(environment)
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        try:
            apt_install(missing)
        except Failed as failure:
            print(failure, flush=True)
        missing = missing_packages(environment)
    if missing:
        hint = f"This machine lacks {', '.join(missing)}. To install: sudo apt-get install {' '.join(missing)}"
        if strict:
            raise Failed(hint)
        print(f"{hint}\nWhat needs them is skipped.", flush=True)
    install_reqlite()


def install_reqlite() -> None:
    """Install the stand-in for RethinkDB, if there is npm; without it, its tests are skipped."""
    npm, folder = shutil.which("npm"), TOOLS / "reqlite"
    if npm is not None:
        folder.mkdir(parents=True, exist_ok=True)
        command = (npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", folder, REQLITE)
        try:
            once(folder / ".stamp", REQLITE, f"install {REQLITE}", lambda: call(*command))
        except Failed as failure:
            print(failure, flush=True)


def missing_packages(environment: Environment) -> list[str]:
    """Return the Debian packages to install, for the servers and for Qt."""
    # By its path: an installed package may be called `tests` as well.
    missing: list[str] = runpy.run_path(str(ROOT / "tests" / "servers.py"))["missing_packages"]()
    try:
        call(environment.python, "-c", "import PySide6.QtWidgets")
    except Failed:
        missing += QT_PACKAGES
    return missing


def apt_install(packages: Sequence[str]) -> None:
    """Install Debian packages, and stop the services that this starts: the tests start their own."""
    with contextlib.suppress(Failed), step("apt-get update"):
        call("apt-get", "update")
    with step(f"apt-get install {' '.join(packages)}"):
        wait = ("-o", f"DPkg::Lock::Timeout={APT_LOCK_SECONDS}")
        call("apt-get", "install", "-y", "--no-install-recommends", *wait, *packages, DEBIAN_FRONTEND="noninteractive")
    for service in [SERVICES[package] for package in packages if package in SERVICES]:
        with contextlib.suppress(Failed):
            call("service", service, "stop")


def prepare(extra: str = "dev", *, python: str = "", system: bool = False, strict: bool = False) -> Environment:
    """Set up what a verb needs and return the environment to run it in."""
    environment = choose_environment(python)
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run.py may be setting up this checkout
        set_up(environment, extra)
        if system:
            set_up_system(environment, strict=strict)
    return environment


def prepare_wheel(python: str) -> Environment:
    """Build the wheel and install it, not the checkout, into an environment of its own."""
    base = choose_environment(python)
    folder = base.folder.with_name(f"{base.folder.name}-wheel")
    environment = Environment(folder, base.interpreter, base.version)
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        uv = get_uv()
        shutil.rmtree(built := ROOT / "build" / "wheel", ignore_errors=True)
        with step("build the wheel"):
            pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", built, ROOT)
            call(*((uv, "build", "--wheel", "--python", base.interpreter, "--out-dir", built) if uv else pip))
        with step(f"install the wheel into {folder.name}"):
            create(environment, uv)
            (wheel,) = built.glob("*.whl")
            install(environment, uv, f"{wheel}[dev]", editable=False)
    return environment


def demo(options: argparse.Namespace) -> int:
    """Watch mainspring at work."""
    seconds = [] if options.seconds is None else ["--seconds", options.seconds]
    hand_over(prepare("dashboard"), "-m", "mainspring", "demo", *seconds, *options.rest)


def test(options: argparse.Namespace) -> int:
    """Run the tests, against real servers; what follows -- goes to pytest."""
    strict = options.strict or os.environ.get("CI") == "true"
    if options.wheel:
        environment = prepare_wheel(options.python)
    else:
        environment = prepare(python=options.python, system=True, strict=strict)
    variables = {"QT_QPA_PLATFORM": "offscreen"} | ({"MAINSPRING_STRICT": "1"} if strict else {})
    chosen = [] if names_a_test(options.rest) else selection(options.only)
    # All of them in a few processes, each with servers of its own; a selection in one, which is easier to debug. Many
    # tests wait for a server or for time to pass, so one process more than there are cores uses what they leave.
    processes = min((os.cpu_count() or 1) + 1, MOST_PROCESSES)
    parallel = ["-n", str(processes), "--dist", "loadfile"] if chosen == ["tests"] else []
    words = ["-m", "pytest", *parallel, *chosen, *options.rest]
    if not options.again:
        hand_over(environment, *words, **variables)
    LAST_FAILED.unlink(missing_ok=True)
    code = run_on(environment, *words, **variables)
    if code != 1 or not 0 < len(failed := last_failed()) <= FEW_FAILED:
        return code
    print(f"\n{len(failed)} failed among all the others; now alone:\n", flush=True)
    code = run_on(environment, "-m", "pytest", "--last-failed", "--last-failed-no-failures=none", "tests", **variables)
    if code == 0:
        print("\nFLAKY: failed among the others and passed alone. Explain and mend:", *failed, sep="\n  ", flush=True)
    return code


def names_a_test(words: Sequence[str], root: Path = ROOT) -> bool:
    """Return True if pytest's own arguments name a file or folder to test."""
    return any(not word.startswith("-") and (root / word.partition("::")[0]).exists() for word in words)


def last_failed(file: Path = LAST_FAILED) -> list[str]:
    """Return the tests that failed in the last run."""
    try:
        return sorted(json.loads(file.read_bytes()))
    except (OSError, ValueError):
        return []


def selection(only: str | None, root: Path = ROOT) -> list[str]:
    """Return pytest's arguments for `--only`: a folder or file, under tests or not, or else an expression for -k."""
    if only is None:
        return ["tests"]
    path, colons, name = only.partition("::")
    for place in (Path("tests", path), Path(path)):
        if (root / place).exists():
            return [f"{place}{colons}{name}"]
    return ["tests", "-k", only]


def lint(options: argparse.Namespace) -> int:
    """Check style and types."""
    environment = prepare()
    places = [name for name in ("src", "tests", "bench", "examples") if any((ROOT / name).rglob("*.py"))]
    failed = False
    for check in (("ruff", "check"), ("ruff", "format", "--check"), ("mypy", "--strict")):
        try:
            with step(" ".join(check)):
                call(environment.python, "-m", *check, *places, "run.py")
        except Failed as failure:
            failed = True
            print(failure, flush=True)
    return int(failed)


def bench(options: argparse.Namespace) -> int:
    """Run a benchmark."""
    # `queue_.py` is the benchmark `queue`: without the underscore, it would be found in place of Python's own module.
    names = {path.stem.rstrip("_"): path.name for path in sorted((ROOT / "bench").glob("[!_]*.py"))}
    if options.name not in names:
        wrong = "bench needs a name" if options.name is None else unknown("benchmark", options.name, list(names))
        raise Failed(f"{wrong}\nThere are: {', '.join(names) or 'none yet'}")
    environment = prepare(system=True)
    hand_over(environment, f"bench/{names[options.name]}", *options.arguments, *options.rest, PYTHONPATH=str(ROOT))


def simulate(options: argparse.Namespace) -> int:
    """Simulate many histories of kills, freezes and lost replies, and check each."""
    hand_over(prepare(), "-m", "tests.simulation", *options.arguments, *options.rest, PYTHONPATH=str(ROOT))


def chaos(options: argparse.Namespace) -> int:
    """Kill, freeze and cut off real processes on a real store, and check that nothing is lost or done twice."""
    environment = prepare(system=True)
    hand_over(environment, "-m", "tests.chaos", *options.arguments, *options.rest, PYTHONPATH=str(ROOT))


def servers(options: argparse.Namespace) -> int:
    """Start every server on a free port and print the URLs, until Ctrl-C."""
    hand_over(prepare(system=True), "tests/servers.py")


def docs(options: argparse.Namespace) -> int:
    """Build the documentation into build/docs; a broken link is an error."""
    # The theme prints a notice about its successor, which reads the same mkdocs.yml.
    hand_over(prepare(), "-m", "mkdocs", "build", "--strict", NO_MKDOCS_2_WARNING="1")


def setup(options: argparse.Namespace) -> int:
    """Only make the environment that the other verbs use."""
    print(f"{prepare(python=options.python).folder.name} is ready")
    return 0


def pythons(options: argparse.Namespace) -> int:
    """List the Pythons of this machine that `--python` can use."""
    print(*sorted(find_pythons(), key=minor), sep="\n")
    return 0


VERBS = {verb.__name__: verb for verb in (demo, test, lint, bench, simulate, chaos, servers, docs, setup, pythons)}

PASSING = ("simulate", "chaos")
"""The verbs that read all of their arguments themselves."""


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Say that a name is unknown, with the nearest known one."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown {kind} {name!r}" + (f", did you mean {near[0]!r}?" if near else "")


def make_parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Describe the command line: as a whole, and each verb's."""
    parser = argparse.ArgumentParser(prog="run.py", description=(__doc__ or "").partition("\n")[0])
    group = parser.add_subparsers(metavar="VERB", required=True, dest="verb")
    add = {name: group.add_parser(name, help=verb.__doc__, allow_abbrev=False) for name, verb in VERBS.items()}
    add["demo"].add_argument("--seconds", metavar="N", help="stop after so many seconds")
    add["test"].add_argument("--strict", action="store_true", help="a missing server is a failure (as with CI=true)")
    add["test"].add_argument("--only", metavar="NAME", help="a folder or file under tests, or an expression for -k")
    add["test"].add_argument("--again", action="store_true", help="run a few failed tests again, alone")
    add["test"].add_argument("--wheel", action="store_true", help="test the built wheel instead of the checkout")
    for name in ("test", "setup"):
        add[name].add_argument("--python", metavar="X.Y", default="", help="use this Python, in its own .venv-X.Y")
    add["bench"].add_argument("name", nargs="?", metavar="NAME", help="which one; without it they are listed")
    for name in ("bench", *PASSING):
        add[name].add_argument("arguments", nargs=argparse.REMAINDER, help="what it is told")
    return parser, add


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; a slip ends the program, with what was probably meant."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    own, rest = list(arguments[:cut]), list(arguments[cut + 1 :])
    parser, parsers = make_parsers()
    if own and not own[0].startswith("-") and own[0] not in VERBS:
        parser.error(f"{unknown('verb', own[0], list(VERBS))} There are: {', '.join(VERBS)}")
    if own and own[0] in PASSING:  # argparse would take the first of their own options for one of ours
        return argparse.Namespace(verb=own[0], arguments=own[1:], rest=rest)
    options, surplus = parser.parse_known_args(own)
    surplus += [] if options.verb in ("demo", "test", "bench") else rest
    if surplus:
        verb = parsers[options.verb]
        verb.error(unknown("argument", surplus[0], re.findall(r"--\w+", verb.format_usage())))
    options.rest = rest
    return options


def main(arguments: Sequence[str]) -> int:
    """Run a verb; return the exit code."""
    if sys.version_info < OLDEST:
        sys.exit("run.py needs Python {}.{} or newer, this is {}".format(*OLDEST, platform.python_version()))
    options = parse(arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `&` does that; Ctrl-C has to reach what we start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return VERBS[options.verb](options)
    except Failed as failure:
        print(f"run.py: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
