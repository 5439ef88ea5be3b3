"""A first queue: a task, calls enqueued to it, and workers in this very process."""

from __future__ import annotations

import tempfile

from mainspring import Mainspring, current_run

folder = tempfile.TemporaryDirectory()
app = Mainspring(f"sqlite:///{folder.name}/jobs.db")


@app.task(queue="mail", retries=5, timeout=30)
def send(to: str) -> str:
    current_run().progress(1, 1, "handed over")
    return f"sent to {to}"


def main() -> None:
    handle = send.enqueue("ada@example.org")
    print("enqueued:", handle.status())
    first, second = (send.options(unique="bob", priority=10).enqueue("bob@example.org") for _ in range(2))
    print("unique:", first == second)

    app.start(work=True)
    print(handle.result(timeout=30))
    print(first.result(timeout=30))
    many = app.enqueue_many(send.call(f"user{number}@example.org") for number in range(1000))
    app.wait(many, timeout=60)
    print("sent:", app.count(queue="mail", status="succeeded"))
    print("by name:", app.enqueue("math:copysign", 2, -2).result(timeout=30))
    app.close()
    folder.cleanup()


if __name__ == "__main__":
    main()
