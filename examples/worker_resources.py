"""Resources that a worker opens once, values made for each run, and functions at the start and stop of a worker."""

import sqlite3
from collections.abc import Iterator

from mainspring import Mainspring, Needs

app = Mainspring("memory://")


@app.on_worker_start
def warm_up() -> None:
    print("worker starts")


@app.resource
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("CREATE TABLE orders (buyer TEXT)")
    yield connection
    connection.close()
    print("database closed")


def transaction(connection: sqlite3.Connection = Needs(database)) -> Iterator[sqlite3.Connection]:
    with connection:  # commits if the run succeeds, else rolls back
        yield connection


@app.task
def order(buyer: str, db: sqlite3.Connection = Needs(transaction)) -> int:
    db.execute("INSERT INTO orders VALUES (?)", [buyer])
    return int(db.execute("SELECT count(*) FROM orders").fetchone()[0])


with app:
    app.start(work=True)
    print("orders:", sorted(order.enqueue(buyer).result(timeout=10) for buyer in ("ann", "bob")))
