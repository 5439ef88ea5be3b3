"""The Python in the guides runs as it stands, one block after another."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    monkeypatch.chdir(tmp_path)
    made = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", made)
    yield made
    for value in list(vars(made).values()):
        if isinstance(value, Mainspring):
            value.close()
    server = getattr(made, "server", None)
    if server is not None:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("guide", ["fastapi", "flask", "signatures", "deploys", "integrations"])
def test_the_blocks_of_a_guide_run(guide: str, module: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / f"{guide}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, f"{guide}.md", "exec"), vars(module))
    for name, test in list(vars(module).items()):
        if name.startswith("test_"):
            test()
    promised = re.findall(r"print\(.*\)  # (.*)", "\n".join(blocks))
    assert [line for line in promised if line not in capsys.readouterr().out] == []
