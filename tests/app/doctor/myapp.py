"""An app for the doctor to look at."""

from __future__ import annotations

from mainspring import Mainspring

app = Mainspring("memory://", timezone="UTC")


@app.task
def known(number: int = 0) -> int:
    return number


@app.task(queue="mail")
def send() -> None: ...
