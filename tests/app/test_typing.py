"""Types: a wrong argument is an error before the program runs, and results have the type that the task returns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """\
from __future__ import annotations
from mainspring import Mainspring, RunHandle, previous
from mainspring.errors import RunCancelled, RunFailed

app = Mainspring("memory://")

@app.task(queue="mail", retries=5, timeout=30)
def send(to: str, copies: int = 1) -> str: raise NotImplementedError

@app.task
def count() -> int: raise NotImplementedError

@app.task
async def fetch(url: str) -> bytes: raise NotImplementedError

@app.task
def size(body: bytes) -> int: raise NotImplementedError

@app.task(retries=3)
async def fetch_again(url: str) -> bytes: raise NotImplementedError

@app.schedule("0 9 * * mon-fri", timezone="Europe/Berlin")
@app.task
def digest() -> None: ...

"""

RIGHT = """\
one: RunHandle[str] = send.enqueue("a@example.org", copies=2)
two: str = send("a@example.org")
three: str = send.delay("a@example.org").result(timeout=1)
four: RunHandle[int] = count.options(delay=60, priority=10, unique="u").enqueue()
five: list[RunHandle[str]] = app.enqueue_many(send.call(to) for to in ("a", "b"))
six: RunHandle[str] = app.enqueue(send, "a@example.org")
seven: RunHandle[bytes] = fetch.enqueue("https://example.org")
eight: bytes = fetch_again.enqueue("https://example.org").result()
nine: RunHandle[bytes] = app.enqueue(fetch, "https://example.org")
ten: RunHandle[list[str]] = app.gather([send.call("a")])
page = fetch.enqueue("https://example.org")
length = size.enqueue(page.output)
several = app.gather([send.call("a")], return_exceptions=True).result()
item: str | RunFailed | RunCancelled = several[0]
with app.flow("f") as flow:
    step: RunHandle[bytes] = flow.add(fetch.call("https://example.org"))
    flow.add(size.call(step.output).after(step, on="end"), after=[page, flow.signal("go")])
app.chain([fetch.call("a"), size.call(previous)])
eleven = app.enqueue("math:copysign", 2, -2).result()
digest.enqueue()

async def main() -> None:
    a: str = await send.enqueue("a")
    b: bytes = await fetch("https://example.org")
    c: RunHandle[str] = await app.aio.enqueue(send, "a")
    d: bytes = await (await app.aio.enqueue(fetch, "a"))
    e: int = await app.aio.count(status="pending")
    async with app.aio.flow() as flow:
        step: RunHandle[str] = flow.add(send.call("a"))
    f: list[str] = await (await app.aio.gather([send.call("a")]))
"""

WRONG = [
    ("size.enqueue(count.enqueue().output)", "arg-type"),
    ("send.enqueue(17)", "arg-type"),
    ("send.enqueue()", "call-arg"),
    ('send.enqueue("a", copys=2)', "call-arg"),
    ("send.delay(17)", "arg-type"),
    ("send.call(17)", "arg-type"),
    ("send(17)", "arg-type"),
    ('send.options(queue="x").enqueue(17)', "arg-type"),
    ("fetch.enqueue(17)", "arg-type"),
    ("app.enqueue(send, 17)", "call-overload"),
    ('number: int = send.enqueue("a").result()', "assignment"),
    ('text: str = fetch.enqueue("a").result()', "assignment"),
    ('coroutine: bytes = fetch("a")', "assignment"),
    ("app.task(17)", "call-overload"),
]


def mypy(path: Path, text: str) -> str:
    path.write_text(text)
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(path)]
    words += ["--cache-dir", str(path.parent / "cache"), "--config-file", str(path.parent / "none.ini")]
    (path.parent / "none.ini").write_text("[mypy]\n")
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def test_types_are_checked_and_inferred(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    lines = [f"{text}  # {code}" for text, code in WRONG]
    said = mypy(tmp_path / "program.py", HEAD + RIGHT + "\n".join(lines) + "\n")
    first = (HEAD + RIGHT).count("\n") + 1
    expected = {number: code for number, (_, code) in enumerate(WRONG, first)}
    errors = [line for line in said.splitlines() if ": error: " in line]
    found = {int(line.split(":")[1]): line.rpartition("[")[2].rstrip("]") for line in errors}
    assert found == expected, said
