"""The suite on a stand-in for RethinkDB, which holds jobs; their runs are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.rethinkdb import RethinkDBJobStore
from tests.conformance.parts import JobsPart
from tests.servers import HOST
from tests.stand_ins import Reqlite

_numbers = count(1)


class TestRethinkDB(JobsPart):
    @pytest.fixture
    def store(self, reqlite_server: Reqlite) -> Iterator[JobStore]:
        table = f"jobs{next(_numbers)}"
        store = RethinkDBJobStore("conformance", table, host=HOST, port=reqlite_server.port, runs=MemoryJobStore())
        store.start(None, "default")
        yield store
        store.r.db("conformance").table_drop(table).run(store.conn)
        store.shutdown()
