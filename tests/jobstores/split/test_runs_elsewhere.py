"""What the store of the runs can do, a split store can do too."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from mainspring import Mainspring
from mainspring.jobstores.base import BaseJobStore, JobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from tests.record_stores import DictRecords
from tests.servers import Redis

LIMIT = 60


def give(value: int) -> int:
    return value


def add(*values: int) -> int:
    return sum(values)


def test_a_step_comes_after_runs_in_different_shards(redis_server: Redis) -> None:
    runs = RedisJobStore(url=redis_server.url, name="split-over-shards", shards=4)
    with Mainspring(SplitJobStore(DictRecords(), runs), secret_key="k" * 32) as app:
        task = app.task(give)
        steps = [task.options(id=f"step-{number}").enqueue(number) for number in range(8)]
        assert len({runs._shards.of_run(step.id) for step in steps}) > 1
        total = app.task(add).enqueue(*[step.output for step in steps])
        app.start(work=True)
        assert total.result(timeout=LIMIT) == sum(range(8))


@pytest.mark.parametrize("commits", [True, False])
def test_a_run_joins_the_transaction_of_the_user(tmp_path: Path, commits: bool) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Mainspring(SplitJobStore(DictRecords(), SQLAlchemyJobStore(url)), secret_key="k" * 32) as app:
        task = app.task(give)
        app.store.stats()
        engine = create_engine(url)
        with Session(engine) as session:
            app.within(session).enqueue(task, 1)
            assert app.count() == 0
            session.commit() if commits else session.rollback()
        engine.dispose()
        assert app.count() == commits


def test_lost_runs_are_noticed(tmp_path: Path) -> None:
    runs = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")
    with Mainspring(SplitJobStore(DictRecords(), runs), secret_key="k" * 32) as app:
        assert app.store.generations() == runs.generations() != ()


def test_no_verb_of_the_contract_is_left_to_its_default() -> None:
    verbs = {name: verb for name, verb in vars(JobStore).items() if name[0] != "_" and isinstance(verb, FunctionType)}
    defaults = {name for name, verb in verbs.items() if getattr(SplitJobStore, name) is verb}
    assert defaults - set(vars(BaseJobStore)) == {"cursor"}  # two stores have no common one
