"""Errors of tasks reach the error reporters that are installed, also those that only the sentinel saw."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.kit import Yard, wait_until

SENTRY = """
import json, os
from contextlib import contextmanager

SENT = os.path.join(os.environ["JOBS_FOLDER"], "sent")

class Scope:
    def __init__(self):
        self.said = {}
    def set_transaction_name(self, name, source=None):
        self.said["transaction"] = name
    def set_tag(self, key, value):
        self.said[key] = value
    def set_context(self, key, value):
        self.said.update(value)

current = None

class Client:
    dsn = "https://key@sentry.invalid/1"

def get_client():
    return Client

@contextmanager
def new_scope():
    global current
    current = Scope()
    yield current

def send(event):
    fd = os.open(SENT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, json.dumps(event).encode() + b"\\n")
    os.close(fd)

def capture_exception(error):
    send({**current.said, "type": type(error).__name__, "text": str(error)})

import sentry_sdk.integrations.logging  # as `sentry_sdk.init()` does by default
"""
LOGGING = """
import logging
import sentry_sdk

ignored = set()

def ignore_logger(name):
    ignored.add(name)

call_handlers = logging.Logger.callHandlers

def call_handlers_and_send(self, record):
    call_handlers(self, record)
    if record.levelno >= logging.ERROR and record.name not in ignored:
        sentry_sdk.send({"log": record.getMessage()})

logging.Logger.callHandlers = call_handlers_and_send
"""
ENTRY = "[mainspring.error_reporters]\nsentry = mainspring.contrib.sentry:report [sentry]\n"
BROKEN = "[mainspring.error_reporters]\nbroken = nowhere_to_be_found:report [nothing]\nworse = json:no_such_name\n"


def install(yard: Yard, name: str, entry_points: str) -> None:
    folder = yard.folder / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(entry_points)


def sent(yard: Yard) -> list[dict[str, Any]]:
    path = yard.folder / "sent"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def reports(yard: Yard) -> list[dict[str, Any]]:
    return [line for line in sent(yard) if "run" in line]


def test_errors_crashes_and_time_outs_reach_sentry_once(yard: Yard) -> None:
    integrations = yard.folder / "sentry_sdk" / "integrations"
    integrations.mkdir(parents=True)
    (yard.folder / "sentry_sdk" / "__init__.py").write_text(SENTRY)
    (integrations / "__init__.py").touch()
    (integrations / "logging.py").write_text(LOGGING)
    (yard.folder / "sitecustomize.py").write_text("import sentry_sdk\n")  # as an app that sets it up does
    install(yard, "with_sentry", ENTRY)
    install(yard, "with_broken", BROKEN)
    yard.env["PYTHONPATH"] = str(yard.folder)
    jobs = yard.jobs
    wanted = {
        jobs.fail.enqueue(): ("fail", "ValueError"),
        jobs.loop_for_ever.options(timeout=0.3).enqueue(): ("loop_for_ever", "RunTimeout"),
        jobs.leave_once.options(queue="side").enqueue(1): ("leave_once", "WorkerDied"),
    }
    fine = jobs.ok.enqueue(1)
    yard.start("-p", "1", "-Q", "default", "--burst")
    yard.start("-p", "1", "-Q", "side", "--burst")
    yard.end([*wanted, fine])
    wait_until(lambda: len(reports(yard)) >= len(wanted), lambda: f"reports\n{yard.log()}")
    found = reports(yard)
    assert len(found) == len(wanted)
    assert [line for line in sent(yard) if any(run.id in line.get("log", "") for run in wanted)] == []
    by_run = {line["run"]: (line["transaction"].rpartition(":")[2], line["type"]) for line in found}
    assert by_run == {run.id: words for run, words in wanted.items()}
    assert {line["mainspring.queue"] for line in found} == {"default", "side"}
    log = yard.log()
    assert "the error reporter 'worse' cannot be loaded and is ignored" in log
    assert "'broken'" not in log
