"""What APScheduler's users expect of any store of jobs: its constructor, its clients, its repr, how it closes."""

from __future__ import annotations

import os
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from mainspring.app import Mainspring
from mainspring.errors import ConfigurationError, ConflictingIdError, JobLookupError, RecordTooLarge, TooManyJobs
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.testing.conformance.helpers import CALL, add_job, make_job, work

NOTHING = datetime(2050, 1, 1, tzinfo=UTC)


class MannersOfStores:
    """Subclasses give the fixtures `url`, `arguments` (to connect) and `path`, and the class of the store."""

    kind: type[Any]
    alias: str

    def test_a_bare_store_works_in_a_scheduler(self, arguments: dict[str, Any], path: str) -> None:
        scheduler = BackgroundScheduler(jobstores={"default": self.kind(path, **arguments)}, timezone="UTC")
        scheduler.start(paused=True)
        scheduler.add_job(work, "date", run_date=NOTHING, id="one")
        with pytest.raises(ConflictingIdError):
            scheduler.add_job(work, "date", run_date=NOTHING, id="one")
        assert [job.id for job in scheduler.get_jobs()] == ["one"]
        scheduler.remove_job("one")
        with pytest.raises(JobLookupError):
            scheduler.remove_job("one")
        scheduler.shutdown()

    def test_a_configuration_names_it_by_its_alias(self, arguments: dict[str, Any], path: str) -> None:
        settings = {f"apscheduler.jobstores.default.{name}": value for name, value in arguments.items()}
        settings |= {"apscheduler.jobstores.default.type": self.alias, "apscheduler.jobstores.default.path": path}
        scheduler = BackgroundScheduler(settings)
        scheduler.start(paused=True)
        scheduler.add_job(work, "date", run_date=NOTHING)
        scheduler.shutdown()

    def test_an_empty_path_is_refused(self) -> None:
        with pytest.raises(ValueError, match='The "path" parameter must not be empty'):
            self.kind(path="")

    def test_an_app_opens_it_by_its_url_and_its_name_is_part_of_the_path(self, url: str, path: str) -> None:
        app = Mainspring(f"{url}{path}", name="shop", store_options={"runs": "memory://"})
        app.store.add_jobs([make_job(app.store, "job")])
        assert app.store.path == f"{path}/shop"  # type: ignore[attr-defined]
        same = self.kind(f"{path}/shop", url=None, client=app.store.client)  # type: ignore[attr-defined]
        assert [job.id for job in same.get_all_jobs()] == ["job"]
        app.close()

    def test_a_url_can_name_the_store_of_the_runs(self, url: str, path: str, tmp_path: Path) -> None:
        runs = f"sqlite:///{tmp_path}/runs.db"
        store = self.kind(url=f"{url}{path}?runs={quote(runs, safe='')}")
        assert isinstance(store.runs, SQLAlchemyJobStore)

    def test_an_unknown_option_of_a_url_is_named(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="no option 'timeot'; did you mean 'timeout'"):
            self.kind(url=f"{url}/path?timeot=3")

    def test_the_url_without_a_path_is_not_apschedulers(self, url: str) -> None:
        assert self.kind(url=url).path == "/mainspring"
        assert self.kind().path == "/apscheduler"

    def test_it_says_whose_it_is_and_hides_passwords(self, arguments: dict[str, Any]) -> None:
        store = self.kind(**arguments)
        assert repr(store) == f"<{self.kind.__name__} (client={store.client})>"
        assert "secret" not in repr(store)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(store)

    def test_a_job_that_is_too_large_is_refused(self, arguments: dict[str, Any], path: str) -> None:
        store = self.kind(path, runs=MemoryJobStore(), **arguments)
        with pytest.raises(RecordTooLarge, match="takes 262,144 of one job"):
            add_job(store, "large", call=replace(CALL, args=(os.urandom(200_000),)))
        assert store.get_all_jobs() == []
        store.shutdown()

    def test_a_store_that_is_full_says_so(
        self, arguments: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = self.kind(path, runs=MemoryJobStore(), **arguments)
        monkeypatch.setattr(type(store.jobs), "max_jobs", 2)
        store.add_jobs([make_job(store, "a"), make_job(store, "b")])
        with pytest.raises(TooManyJobs, match="takes 2 jobs, and would have 3"):
            add_job(store, "c")
        store.shutdown()

    def test_it_can_be_closed_and_used_again(self, arguments: dict[str, Any], path: str) -> None:
        store = self.kind(path, runs=MemoryJobStore(), **arguments)
        for number in range(2):
            store.start(None, "default")
            add_job(store, f"job-{number}")
            store.shutdown()
        assert len(store.get_all_jobs()) == 2
        store.shutdown()
