"""What tests of executors share: runs, a receiver of reports, waiting for things that must come."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mainspring.core.policy import Policy
from mainspring.core.run import Call, Report, Run

LIMIT = 90.0
_numbers = itertools.count()


def make_run(func: Callable[..., Any] | str, *args: Any, policy: Policy | None = None, **fields: Any) -> Run:
    kwargs = fields.pop("kwargs", {})
    fields.setdefault("id", f"r{next(_numbers)}")
    fields.setdefault("attempt", 1)
    return Run(call=Call(func, args, kwargs, getattr(func, "__name__", "")), policy=policy or Policy(), **fields)


def timeout(seconds: float, retries: int = 0) -> Policy:
    return Policy(timeout=seconds, retries=retries)


class Reports:
    """Receives reports from any thread."""

    def __init__(self) -> None:
        self.all: list[Report] = []
        self._changed = threading.Condition()

    def __call__(self, report: Report) -> None:
        with self._changed:
            self.all.append(report)
            self._changed.notify_all()

    def wait(self, count: int = 1) -> list[Report]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= count, LIMIT), f"only {len(self.all)} of {count}"
            return list(self.all)

    @property
    def counts(self) -> Counter[str]:
        with self._changed:
            return Counter(report.run.id for report in self.all)


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def wait_for_file(path: Path) -> str:
    wait_until(path.exists)
    return path.read_text()
