"""Counters that outlive runs: a store adds up the nodes' counts, finds them by time, and forgets them by level."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from mainspring.core.insight.metrics import LEVELS, MOST_NAMES, Tally
from mainspring.jobstores.base import JobStore

MINUTES, HOURS, DAYS = range(3)


def tally(store: JobStore, ago: int = 0, level: int = MINUTES, kind: str = "queue", name: str = "mail") -> Tally:
    """Make a tally of an earlier stretch: one in its first cell, two in a later cell."""
    stretch = LEVELS[level].stretch
    return Tally(kind, name, level, store.beat() // stretch * stretch - ago * stretch, {0: 1, 70: 2})


def found(store: JobStore, level: int = MINUTES, kind: str = "queue", name: str | None = None) -> list[Tally]:
    """Return all tallies of a kind."""
    now = store.beat()
    return store.tallies(kind=kind, name=name, level=level, since=now - 200 * LEVELS[DAYS].stretch // 10, until=now + 1)


class TallyConformance:
    """Tests that a store adds up counts."""

    def test_counts_are_added_to_those_that_are_kept(self, store: JobStore) -> None:
        first = tally(store)
        store.tallies([first])
        store.tallies([Tally("queue", "mail", MINUTES, first.at, {70: 1, 3000: 5})])
        assert found(store) == [Tally("queue", "mail", MINUTES, first.at, {0: 1, 70: 3, 3000: 5})]

    def test_a_subject_that_comes_twice_is_counted_twice(self, store: JobStore) -> None:
        store.tallies([tally(store), tally(store)])
        assert [each.cells for each in found(store)] == [{0: 2, 70: 4}]

    def test_large_counts_stay_exact(self, store: JobStore) -> None:
        large = 2**50
        store.tallies([Tally("all", "", DAYS, 0, {8: large})])
        store.tallies([Tally("all", "", DAYS, 0, {8: 1})])
        assert store.tallies(level=DAYS, since=0, until=1) == [Tally("all", "", DAYS, 0, {8: large + 1})]

    def test_kinds_and_names_and_levels_are_told_apart(self, store: JobStore) -> None:
        names = ("mail", "mailing", "mai", "märz ☂", "a:b{c}", "")
        tallies = [
            tally(store, level=level, kind=kind, name=name)
            for level in (MINUTES, HOURS, DAYS)
            for kind in ("queue", "task", "job")
            for name in names
        ]
        store.tallies(tallies)
        for each in tallies:
            assert found(store, each.level, each.kind, each.name) == [each]
        assert {each.name for each in found(store, HOURS, "task")} == {*names}
        assert found(store, HOURS, "all") == []
        assert found(store, HOURS, "job", "other") == []

    def test_tallies_are_found_by_time_oldest_first(self, store: JobStore) -> None:
        tallies = [tally(store, ago) for ago in (0, 2, 1, 3)]
        store.tallies(tallies)
        assert [each.at for each in found(store)] == sorted(each.at for each in tallies)
        two, one = tallies[1].at, tallies[2].at
        assert [each.at for each in store.tallies(kind="queue", since=two + 5, until=one)] == [two]
        assert [each.at for each in store.tallies(kind="queue", since=two + 5, until=one + 1)] == [two, one]
        assert store.tallies(kind="queue", since=two, until=two) == []

    def test_minutes_and_hours_are_forgotten_and_days_are_not(self, store: JobStore) -> None:
        old = [tally(store, 60, MINUTES), tally(store, 100, HOURS), tally(store, 30, DAYS)]
        store.tallies(old)
        store.tallies([tally(store, 0, level) for level in (MINUTES, HOURS, DAYS)])
        now = store.beat()
        kept = [
            len(store.tallies(kind="queue", level=level, since=now - 40 * LEVELS[DAYS].stretch, until=now + 1))
            for level in (MINUTES, HOURS, DAYS)
        ]
        assert kept == [1, 1, 2]

    def test_a_stretch_has_a_limited_number_of_names(self, store: JobStore) -> None:
        store.tallies([tally(store, name=f"q{number:04}") for number in range(MOST_NAMES - 1)])
        store.tallies([tally(store, name=f"x{number}") for number in range(3)])
        store.tallies([tally(store, name="q0000"), tally(store, name="y")])
        cells = {each.name: each.cells[70] for each in found(store)}
        assert len(cells) == MOST_NAMES + 1
        assert cells["q0000"] == 4
        assert cells[""] == 6
        assert sum(cells.values()) == 2 * (MOST_NAMES + 4)

    def test_nodes_that_count_at_once_lose_nothing(self, store: JobStore) -> None:
        def count(number: int) -> None:
            store.tallies([tally(store, name=name) for name in ("b", "a", f"own{number}")])

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(count, range(40)))
        cells = {each.name: each.cells for each in found(store)}
        assert cells["a"] == cells["b"] == {0: 40, 70: 80}
        assert len(cells) == 42
