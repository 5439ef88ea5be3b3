"""Sentry: each error once, with its run, and check-ins of cron monitors. It sends nothing: it prints instead."""

import logging
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from mainspring import Mainspring
from mainspring.contrib.sentry import monitor_jobs


class Printer(Transport):
    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            sent: Any = item.payload.json or {}
            if item.type == "check_in":
                print("check-in:", sent["monitor_slug"], sent["status"])
            elif item.type == "event":
                print("error:", sent["exception"]["values"][0]["type"], "in", sent["transaction"])


sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=Printer, auto_enabling_integrations=False)
logging.getLogger("mainspring").addHandler(logging.NullHandler())  # the log has it, too; Sentry leaves that out
app = Mainspring("memory://")
monitor_jobs(app, max_runtime=30)


@app.schedule("0 3 * * mon-fri", timezone="Europe/Berlin", id="nightly")
def report() -> None:
    raise LookupError("no orders")


with app:
    app.start(work=True)
    app.wait([app.run_now("nightly")], timeout=10)
