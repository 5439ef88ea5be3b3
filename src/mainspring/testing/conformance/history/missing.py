"""A store without history: an app works on it as on any other, and a request for history raises a clear error."""

from __future__ import annotations

import logging

import pytest

from mainspring.app import Mainspring
from mainspring.core.insight.metrics import Tally
from mainspring.errors import HistoryNotKept
from mainspring.jobstores.base import JobStore
from mainspring.testing.conformance.helpers import work
from mainspring.testing.conformance.history.acts import make_act


class NoHistoryConformance:
    """Tests for a store that overrides neither `acts` nor `tallies`."""

    def test_it_takes_acts_and_counts_and_keeps_none(self, store: JobStore) -> None:
        assert not store.keeps_history
        assert store.acts([make_act()], limit=10) == []
        assert store.tallies([Tally("all", "", 0, 0, {0: 1})], since=0, until=1) == []

    def test_it_says_once_that_nothing_is_kept(self, store: JobStore, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "mainspring.jobstores"):
            store.acts(limit=10)
            assert caplog.records == []
            for _ in range(2):
                store.acts([make_act()])
                store.tallies([Tally("all", "", 0, 0, {0: 1})])
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "keeps no history" in caplog.text

    def test_an_app_runs_tasks_on_it_and_names_what_it_lacks(self, store: JobStore) -> None:
        with Mainspring(store) as app:
            task = app.task(work)
            app.start(work=True)
            assert task.enqueue(1).result(timeout=30) is None
            app.pause_queue("default")  # an act, which this store does not record
            assert app.explain("queue:default").state == "paused"
            assert app.errors().groups == []
            for ask in (app.audit, app.metrics, app.task_figures, lambda: app.search("by:ann")):
                with pytest.raises(HistoryNotKept, match="keeps no history"):
                    ask()
            with pytest.raises(HistoryNotKept, match="no node would read"):
                app.quiet_node(app.nodes()[0].id)
