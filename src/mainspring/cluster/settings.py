"""What a cluster is told, and what it tells of itself."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.core.quantities import check_count, check_seconds
from mainspring.errors import ConfigurationError, near
from mainspring.node.node import MOST_CLAIMED

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["ClusterStat", "Settings", "WorkerStat", "find_app", "path_of"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster works; `app` is where its processes import the app from: `module:attribute`."""

    app: str
    queues: dict[str, int | None] | None = None
    processes: int = 0
    """0: as many as there are cores."""
    threads: int = 8
    coroutines: int = 1000
    schedule: bool = True
    burst: bool = False
    """End when nothing is left to do."""
    max_runs: int | None = None
    max_rss: int | None = None
    """Bytes of memory above which a worker process is replaced."""
    grace: float = 25.0
    """Seconds that what runs is given to end when the cluster stops."""
    timeout_grace: float = 5.0
    """Seconds past a run's time-out after which its process is replaced."""
    start_method: str = "spawn"
    log_level: str | None = None

    def __post_init__(self) -> None:
        for name, limit in (self.queues or {}).items():
            if limit is not None:
                check_count(f"the limit of the queue {name!r}", limit)
        check_count("processes", self.processes, least=0)
        check_count("threads", self.threads)
        check_count("coroutines", self.coroutines)
        for name in ("max_runs", "max_rss"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_seconds("grace", self.grace)
        check_seconds("timeout_grace", self.timeout_grace)

    @property
    def size(self) -> int:
        """How many worker processes there are."""
        return self.processes or os.cpu_count() or 1

    @property
    def entries(self) -> int:
        """More runs than a worker process ever has that it has started and the store does not know to have ended."""
        return self.threads + self.coroutines + 6 * MOST_CLAIMED


class WorkerStat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process as its sentinel sees it."""

    pid: int
    state: str
    started_at: float
    claims: int = 0
    runs: int = 0
    restarts: int = 0


class ClusterStat(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster as its sentinel sees it: starting, running, stopping or stopped."""

    pid: int
    state: str
    started_at: float
    workers: tuple[WorkerStat, ...] = ()

    @property
    def runs(self) -> int:
        """How many runs the living workers have ended."""
        return sum(worker.runs for worker in self.workers)


def path_of(app: Mainspring) -> str:
    """Return where another process can import an app from: the module variable that holds it."""
    # The main program last: what it has under its guard, another process that imports it does not see.
    modules = sorted(sys.modules.items(), key=lambda item: item[0] == "__main__")
    for name, module in modules:
        if name == "__mp_main__":
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is app:
                return f"{name}:{attribute}"
    raise ConfigurationError(
        "worker processes import the app, so it has to be a variable of a module: app = Mainspring(...)"
    )


def find_app(path: str) -> Mainspring:
    """Import the app at `module:attribute`, `module` or `file.py`; without an attribute, the one app in it."""
    from importlib import import_module
    from pathlib import Path

    from mainspring.app import Mainspring
    from mainspring.app.import_guard import importing

    module_name, _, attribute = path.partition(":")
    file: Path | None = None
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if module_name.endswith(".py") or os.sep in module_name:
        file = Path(module_name).resolve()
        if not file.is_file():
            raise ConfigurationError(f"there is no file {str(file)!r} to load the app from")
        sys.path.insert(0, str(file.parent))
        module_name = file.stem
    try:
        with importing(module_name):
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise  # the module is there, but needs one that is not
        here = [file.stem for file in Path.cwd().glob("*.py")]
        raise ConfigurationError(
            f"no module {module_name!r} can be imported from the folder {os.getcwd()!r}{near(module_name, here)}"
        ) from None
    if file is not None and Path(getattr(module, "__file__", None) or "").resolve() != file:
        raise ConfigurationError(f"the name of {str(file)!r} is taken by another module, {module!r}; rename the file")
    if attribute:
        found: Any = getattr(module, attribute, None)
        if found is None:
            names = [name for name, value in vars(module).items() if isinstance(value, Mainspring)]
            raise ConfigurationError(f"module {module_name!r} has no {attribute!r}{near(attribute, names)}")
        if not isinstance(found, Mainspring):
            raise ConfigurationError(f"{path!r} is {found!r}, not a Mainspring app")
        return found
    apps = {name: value for name, value in vars(module).items() if isinstance(value, Mainspring)}
    if len(set(map(id, apps.values()))) != 1:
        which = ", ".join(f"{module_name}:{name}" for name in apps) or "none"
        raise ConfigurationError(f"which app of {module_name!r} is meant? it has {which}")
    return next(iter(apps.values()))
