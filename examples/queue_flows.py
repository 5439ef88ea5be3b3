"""Chains, gathering, hooks and retries, executed inline as a test would."""

from __future__ import annotations

import logging

from mainspring import Mainspring, Retry, current_run
from mainspring.core.waiting.followups import FinishedRun

app = Mainspring("memory://", inline=True)
logging.disable()  # what fails is logged


@app.task
def note(run: FinishedRun) -> None:
    print(f"hook: {run.name} {run.status}")


@app.task
def square(number: int) -> int:
    return number * number


@app.task(retries=3, hook=note)
def flaky() -> str:
    if current_run().attempt < 3:
        raise Retry(delay=60, reason="not yet")
    return f"worked at attempt {current_run().attempt}"


def main() -> None:
    first, second, third = app.chain([square.call(2), square.call(3), square.call(4)])
    print("chain:", first.result(), second.result(), third.result())
    print("gathered:", app.gather(square.call(number) for number in range(5)).result())
    print(flaky.enqueue().result())


if __name__ == "__main__":
    main()
