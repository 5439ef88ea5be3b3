"""The benchmarks run: each subject prints its table. How quick anything is, is no matter of tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCHEDULER = "scheduler.py"
QUEUE = "queue_.py"


def bench(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = REPOSITORY / "bench" / name
    return subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, cwd=REPOSITORY)


def rows(output: str, subject: str) -> list[list[str]]:
    """Return the cells of a subject's table, below its header."""
    lines = output.partition(f"\n{subject}: ")[2].splitlines()
    ruler = next(number for number, line in enumerate(lines) if line.startswith("---"))
    return [line.split() for line in lines[ruler + 1 :] if line.strip()]


@pytest.mark.parametrize(
    ("subject", "count", "word"),
    [
        ("add", 1, "1,000"),
        ("fire", 6, "mainspring"),
        ("scale", 2, "100"),
        ("memory", 1, "1,000"),
        ("cron", 3, "*/5"),
        ("import", 1, ">="),
    ],
)
def test_a_quick_run_of_the_scheduler_benchmark_prints_its_table(subject: str, count: int, word: str) -> None:
    done = bench(SCHEDULER, "--quick", subject)

    assert done.returncode == 0, done.stderr
    assert "mainspring" in done.stdout.splitlines()[0]
    assert "apscheduler 3.11" in done.stdout.splitlines()[0]
    table = rows(done.stdout, subject)
    assert len(table) == count
    assert any(word in row for row in table)


def test_an_unknown_subject_of_the_scheduler_benchmark_is_named_with_those_there_are() -> None:
    done = bench(SCHEDULER, "ad")

    assert done.returncode == 2
    assert "'ad'" in done.stderr
    assert "add, fire, scale, memory, cron, import" in done.stderr


@pytest.mark.parametrize(
    ("subject", "count", "word"),
    [("enqueue", 1, "mainspring"), ("execute", 2, "mainspring"), ("idle", 1, "mainspring"), ("layers", 14, "together")],
)
def test_a_quick_run_of_the_queue_benchmark_prints_the_table_of_our_side(subject: str, count: int, word: str) -> None:
    done = bench(QUEUE, "--quick", "--library", "mainspring", "--store", "sqlite", subject)

    assert done.returncode == 0, done.stderr
    assert "mainspring" in done.stdout.splitlines()[0]
    table = rows(done.stdout, subject)
    assert len(table) == count, done.stdout
    assert any(word in row for row in table)


def test_an_unknown_subject_of_the_queue_benchmark_is_named_with_those_there_are() -> None:
    done = bench(QUEUE, "idel")

    assert done.returncode == 2
    assert "'idel'" in done.stderr
    assert "enqueue, execute, idle, layers" in done.stderr
