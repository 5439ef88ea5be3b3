"""Run the programs of pages, each in a process of its own; all start from one that has imported mainspring already.

`python -m tests.docs.running FOLDER...` runs `page.py` in each folder and leaves `out`, `err` and `code` there.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Final

PRELOADED: Final = (
    "mainspring.app",
    "mainspring.jobstores.sqlalchemy",
    "mainspring.jobstores.redis",
    "mainspring.schedulers.background",
    "mainspring.tasks",
    "mainspring.testing",
    "sqlalchemy.orm",
    "asyncio",
)
"""What most pages need. Importing it takes most of the time of a page."""


def main(folders: list[str]) -> None:
    """Run the pages one after another."""
    for name in PRELOADED:
        import_module(name)
    gc.freeze()  # so that children need not look at all this, nor copy it
    for folder in map(Path, folders):
        # Such a child ends without taking all its modules apart, which would take longer than most pages.
        child = get_context("fork").Process(target=_run, args=(folder,))
        child.start()
        child.join()
        (folder / "code").write_text(str(child.exitcode))


def _run(folder: Path) -> None:
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.chdir(folder)
    sys.path[0] = str(folder)
    runpy.run_path("page.py", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
