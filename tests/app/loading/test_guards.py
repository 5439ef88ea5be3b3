"""A main module that child processes import, and that forgets to ask whether it is the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import multiprocessing
from mainspring import Mainspring

app = Mainspring("memory://")
if __name__ == "__mp_main__":
    app.enqueue("mainspring:collect", 0)
    app.enqueue("mainspring:collect", 0)
    app.start()
    app.stop()
    app.run()
else:
    child = multiprocessing.get_context("spawn").Process(target=print)
    child.start()
    child.join()
    print(child.exitcode)
"""


def test_in_a_child_process_it_is_warned_of_what_it_enqueues_and_cannot_run_for_ever(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1\n")
    advice = 'while a child process imports the main module of its parent; put it under if __name__ == "__main__":'
    assert done.stderr.count(f"a run was enqueued {advice}") == 1
    assert f"ConfigurationError: the app is run {advice}" in done.stderr
