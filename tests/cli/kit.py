"""A small shop whose runs the commands list, retry and delete."""

from __future__ import annotations

import json
import logging
from typing import Any

from click.testing import CliRunner, Result

from mainspring import Mainspring
from mainspring.cli import main

KEY = "a key of the tests that is long enough"
LIMIT = 90.0


def send_mail(to: str, password: str = "") -> str:
    """Fail for bob, log for everybody."""
    logging.getLogger("shop").warning("sending to %s", to)
    if to == "bob":
        raise TimeoutError("mail.example.com did not answer")
    return f"sent to {to}"


def resize(picture: str, width: int = 100) -> str:
    """Do something else."""
    return f"{picture}@{width}"


class Shop:
    """An app with some runs, and the commands that act on it."""

    def __init__(self, url: str, name: str = "mainspring") -> None:
        self.url, self.name = url, name
        self.app = Mainspring(url, name=name, secret_key=KEY)
        self.send = self.app.task(queue="mail")(send_mail)
        self.resize = self.app.task(resize)

    def open(self) -> None:
        """Execute three mails, of which one fails, and leave two pictures waiting."""
        self.ids = {to: self.send.enqueue(to, password="hunter2").id for to in ("ann", "bob", "eve")}
        self.app.start(work=True, queues=["mail"])
        self.app.wait(list(self.ids.values()), LIMIT)
        self.app.stop()
        self.ids["cat"] = self.resize.enqueue("cat.png").id
        self.ids["dog"] = self.resize.options(delay=3600).enqueue("dog.png", width=30).id

    def call(self, *words: str, input: str | None = None, **options: Any) -> Result:
        """Call a command on the shop's store."""
        found = CliRunner(
            env={"MAINSPRING_URL": self.url, "MAINSPRING_SECRET_KEY": KEY, "MAINSPRING_APP": None}
        ).invoke(main, [*words, *(["--name", self.name] if self.name != "mainspring" else [])], input=input, **options)
        assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
        return found

    def json(self, *words: str) -> Any:
        """Return what a command says as JSON."""
        return json.loads(self.call(*words, "--json").stdout)

    def statuses(self) -> dict[str, str]:
        """Return the status of each run that is still there."""
        found = {run.id: str(run.status) for run in self.app.find()}
        return {who: found[run_id] for who, run_id in self.ids.items() if run_id in found}
