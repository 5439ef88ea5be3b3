"""A flow: pages are fetched side by side, merged, and published when somebody approves."""

from __future__ import annotations

from mainspring import Mainspring

app = Mainspring("memory://")


@app.task
def fetch(number: int) -> str:
    return f"page {number}"


@app.task
def merge(pages: list[str]) -> str:
    return " + ".join(pages)


@app.task
def publish(text: str, by: str) -> str:
    return f"{text}, approved by {by}"


def main() -> None:
    with app.flow("import 7") as flow:  # stored when the block ends, all or nothing
        pages = [flow.add(fetch.call(number)) for number in range(3)]
        whole = flow.add(merge.call([page.output for page in pages]))
        published = flow.add(publish.call(whole.output, by=flow.signal("approved").output))
    app.start(work=True)
    print("merged:", whole.result(timeout=30), published.status())
    app.signal("import 7~approved", "ann")
    print("published:", published.result(timeout=30), flow.status())
    app.close()


if __name__ == "__main__":
    main()
