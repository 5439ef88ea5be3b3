"""A closed app leaves no connection open, not even one that another thread was using."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from mainspring import Mainspring
from tests.app.forking.test_forking import double
from tests.app.kit import LIMIT
from tests.executors.helpers import wait_until

CONNECTIONS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id <> connection_id() AND db = database()",
}


def counting(url: str) -> Callable[[], int]:
    """Return a function that counts the connections to a database."""
    kind = url.partition(":")[0].partition("+")[0]
    if kind == "sqlite":
        folder = str(Path(url.removeprefix("sqlite:///")).parent)
        return lambda: sum(folder in _target(name) for name in os.listdir("/proc/self/fd"))

    def count() -> int:
        engine = create_engine(url)
        with engine.connect() as connection:
            number: int = connection.scalar(text(CONNECTIONS[kind])) or 0
        engine.dispose()
        return number

    return count


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


@pytest.mark.skipif(sys.platform != "linux", reason="counts the open files of this process")
@pytest.mark.parametrize("url", ["sqlite", "postgresql", "mariadb"], indirect=True)
def test_a_connection_that_is_in_use_is_closed_when_its_user_is_done(app: Mainspring, url: str) -> None:
    count = counting(url)
    before = count()
    app.task(double).enqueue(1)
    store: Any = app.store
    inside, go_on = threading.Event(), threading.Event()

    def work(tx: Any) -> None:
        tx.one("SELECT value FROM {meta} WHERE name = 'made'")
        inside.set()
        assert go_on.wait(LIMIT)

    user = threading.Thread(target=store._read, args=(work,))
    user.start()
    assert inside.wait(LIMIT)
    gc.disable()  # it would close it some day
    try:
        app.close()
        go_on.set()
        user.join()
        wait_until(lambda: count() <= before)
    finally:
        gc.enable()
