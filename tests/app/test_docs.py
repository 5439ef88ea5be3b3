"""The guide's snippets run, one after another, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "queue.md"


def test_the_snippets_of_the_guide_run_in_order(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) > 10
    program = tmp_path / "guide.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, program.name], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for line in ("sent to ada@example.org", "already paid", "[0, 1, 4, 9, 16]", "-2.0"):
        assert line in done.stdout
    assert "log_in('ada', ***)" in done.stdout
    assert "s3cret" not in done.stdout


def test_the_snippets_about_flows_run_in_order(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (GUIDE.parent / "flows.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert len(blocks) == 4
    program = tmp_path / "shop.py"
    program.write_text("\n".join([*blocks, "app.close()"]), encoding="utf-8")
    done = subprocess.run([sys.executable, program.name], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"print\(.*\)  # (.*)", "\n".join(blocks))
    assert [line for line in promised if line not in done.stdout.splitlines()] == []


def test_every_option_is_in_the_guide() -> None:
    from mainspring.app.registry import Options
    from mainspring.core.validation import POLICY_FIELDS

    table = GUIDE.read_text(encoding="utf-8").partition("## Options")[2].partition("## ")[0]
    options = (POLICY_FIELDS | set(Options.__struct_fields__)) - {"policy", "admission"}
    assert [name for name in sorted(options) if f"`{name}`" not in table] == []
