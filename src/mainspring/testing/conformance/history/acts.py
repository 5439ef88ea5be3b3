"""People's acts: a store keeps them, finds them by subject, and forgets old ones."""

from __future__ import annotations

from typing import Any

from mainspring.core.insight.acts import KEEP_ACTS_US, MOST_ACTS, Act, about, act_id
from mainspring.jobstores.base import JobStore
from mainspring.testing.conformance.helpers import new_id

DAY = 86_400_000_000
START = 1_760_000_000_000_000


def make_act(at: int = START, target: str = "mail", **fields: Any) -> Act:
    """Make an act with a new id."""
    base = {"verb": "pause_queue", "kind": "queue", "by": "ann"}
    return Act(**{"id": act_id(at, new_id("-")), "at": at, "target": target, **base, **fields})


class ActConformance:
    """Tests that a store keeps who did what."""

    def test_an_act_is_kept_as_it_is(self, store: JobStore) -> None:
        act = make_act(why="the provider is down, so stop ☂", details={"waiting": 12, "before": [1, None, "x"]})
        store.acts([act])
        assert store.acts(limit=10) == [act]

    def test_acts_are_found_newest_first_whatever_the_order_they_came_in(self, store: JobStore) -> None:
        acts = [make_act(START + number * DAY) for number in (3, 1, 2)]
        for act in acts:
            store.acts([act])
        assert store.acts(limit=10) == [acts[0], acts[2], acts[1]]

    def test_acts_about_one_thing_are_told_from_those_about_others(self, store: JobStore) -> None:
        kinds = {"run": "cancel", "job": "pause_job", "queue": "pause_queue"}
        acts = [make_act(START + number, kind=kind, verb=verb) for number, (kind, verb) in enumerate(kinds.items())]
        store.acts([*acts, make_act(target="mailing"), make_act(target="mai")])
        for act in acts:
            assert store.acts(about=act.about, limit=10) == [act]
        assert store.acts(about=about("node", "mail"), limit=10) == []

    def test_pages_of_acts_follow_each_other(self, store: JobStore) -> None:
        acts = [make_act(START + number, target=f"q{number % 2}") for number in range(7)]
        store.acts(acts)
        for name, wanted in ((None, acts[::-1]), ("queue:q1", [act for act in acts[::-1] if act.target == "q1"])):
            found = page = store.acts(about=name, limit=2)
            while page:
                page = store.acts(about=name, after=page[-1], limit=2)
                found = found + page
            assert found == wanted

    def test_acts_of_three_months_ago_are_forgotten(self, store: JobStore) -> None:
        old, new = make_act(START), make_act(START + KEEP_ACTS_US - DAY)
        store.acts([old])
        store.acts([new])
        assert store.acts(limit=10) == [new, old]
        newer = make_act(START + KEEP_ACTS_US + DAY)
        store.acts([newer])
        assert store.acts(limit=10) == [newer, new]
        assert store.acts(about="queue:mail", limit=10) == [newer, new]

    def test_of_too_many_acts_the_oldest_are_forgotten(self, store: JobStore) -> None:
        acts = [make_act(START + number, target=f"q{number}") for number in range(MOST_ACTS + 3)]
        for first in range(0, len(acts), 1000):
            store.acts(acts[first : first + 1000])
        assert store.acts(about="queue:q2", limit=10) == []
        assert store.acts(about="queue:q3", limit=10) == [acts[3]]
        assert store.acts(after=acts[4], limit=10) == [acts[3]]
