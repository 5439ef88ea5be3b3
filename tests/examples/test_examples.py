"""The examples run as they are and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# Each line that an example has to print, as a pattern.
PRINTED = {
    "django_q_style": ["a call: -2.0", r"a group: \[6, 10\]", r"a chain: \[3, 7\]", "a schedule: 31 Jan 28 Feb 31 Mar"],
    "tracker_pipeline": [
        r"40: tracker_pipeline\.py has \d+ words",
        r"13: FileNotFoundError\(2, 'No such file or directory'\)",
    ],
    "background": ["tick", "once", r"    tick \(trigger: interval\[0:00:00.500000\], paused\)", "stopped"],
    "asyncio_jobs": ["crunched on a thread", "news fetched on MainThread"],
    "cron_timezones": [
        "    Sun 2026-03-29 03:00 CEST",
        "    Sun 2026-10-25 02:30 CEST",
        "    Mon 2026-10-26 02:30 CET",
        "    Fri 2026-04-24 17:00 CEST",
        "    Sun 2026-04-05 09:00 CEST",
    ],
    "events": [
        "good returned 2.0",
        r"bad raised ZeroDivisionError\('division by zero'\)",
        "late missed its time",
    ],
    "misfire_and_coalesce": [
        "the default, late but once: ran 1",
        "each of them: ran 5",
        "those of the last 2 minutes: ran 2",
        "those of the last 2 minutes: missed 1",
        "only in time: missed 1",
    ],
    "timeout_and_retry": ["flaky: worked at attempt 3", "endless: the run passed its time-out of 0.5 s"],
    "process_pool": ["first: 168", "crash: WorkerDied", "after: 25"],
    "queue_first": ["enqueued: pending", "unique: True", "sent to ada@example.org", "sent: 1002", r"by name: -2\.0"],
    "queue_flows": [
        "chain: 4 9 16",
        r"gathered: \[0, 1, 4, 9, 16\]",
        "hook: flaky succeeded",
        "worked at attempt 3",
    ],
    "flow_import": [
        r"merged: page 0 \+ page 1 \+ page 2 blocked",
        r"published: page 0 \+ page 1 \+ page 2, approved by ann succeeded",
    ],
    "reference_store": ["from the reference store: 3"],
    "json_folder_store": ["hello, world", "1 job is in the folder"],
    "runs_in_a_dict": ["claimed: fetch", "claimed: parse"],
    "fastapi_app": ["mail: {'status': 'succeeded', 'mail': 'sent to ann'}", "unknown: 404", "dashboard: 200"],
    "flask_app": ["task: hello, ann", "dashboard: 200"],
    "logging_context": [
        r"INFO \[None, attempt None\] shop\.mail: web request",
        r"INFO \[send_mail, attempt 1\] shop\.mail: to ann",
        "kept with the run: .* INFO shop.mail: to ann.*",
    ],
    "opentelemetry_traces": [
        "create default <- POST /orders",
        "process default <- create default",
        "smtp <- process default",
        "traces: 1",
    ],
    "prometheus_metrics": [
        r'mainspring_runs_ended_total\{status="succeeded"\} 1',
        r'mainspring_queue_waiting\{queue="default"\} 0',
    ],
    "sentry_monitors": [
        "check-in: nightly in_progress",
        "error: LookupError in report",
        "check-in: nightly error",
    ],
    "validated_arguments": [
        "a dict becomes the model: 2 x tea",
        "refused: ship refuses order.quantity: Input should be greater than 0",
        r"refused: refund refuses order_id: Expected `int`, got `str`; amounts\[1\]: Expected `float`, got `str`",
    ],
    "webhook_on_end": ["report.pdf", r'told: \{"name": "convert", "success": true\}'],
    "worker_resources": ["worker starts", r"orders: \[1, 2\]", "database closed"],
    "share_a_store": ["200 fires of 50 jobs by 4 schedulers, at most 1 run of each"],
}


def test_every_example_is_checked() -> None:
    assert sorted(PRINTED) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_promises(name: str) -> None:
    path = EXAMPLES / f"{name}.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    missing = [pattern for pattern in PRINTED[name] if not any(re.fullmatch(pattern, line) for line in lines)]
    assert missing == [], done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_is_short(name: str) -> None:
    most = {"reference_store": 660, "json_folder_store": 150, "runs_in_a_dict": 230}.get(name, 40)  # whole stores
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < most
