"""A node that dies or stalls at any of its writes loses nothing, starts nothing early, and runs nothing twice."""

from __future__ import annotations

import threading

import pytest

from examples.runs_in_a_dict import DictRunRecords
from tests.jobstores.run_records.mortal import Died, Ledger, MortalRecords, Node, asleep, check_end, flow, story

LATER = 120.0
"""Seconds after which every lease is over and others finish what was begun."""


def die() -> None:
    raise Died


def number_of_writes() -> int:
    records = MortalRecords(DictRunRecords())
    story(Node(records, Ledger()))
    return records.writes


def test_the_story_ends_well_if_nobody_dies() -> None:
    records, ledger = DictRunRecords(), Ledger()
    node = Node(records, ledger)
    story(node)
    node.drain()
    check_end(records, ledger)
    assert {"a", "join", "hook", "late", "then", "keyed 2"} <= ledger.added


@pytest.mark.parametrize("after", [False, True])
def test_another_node_goes_on_wherever_a_node_dies(after: bool) -> None:
    for number in range(1, number_of_writes() + 1):
        records, ledger = DictRunRecords(), Ledger()
        with pytest.raises(Died):
            story(Node(MortalRecords(records, die, number, after), ledger))
        node = Node(records, ledger, LATER)
        node.drain()
        check_end(records, ledger)


@pytest.mark.parametrize("after", [False, True])
def test_a_caller_that_repeats_a_cut_off_add_gets_all_of_its_flow(after: bool) -> None:
    records = MortalRecords(DictRunRecords())
    Node(records, Ledger()).add(flow(Node(records, Ledger())))
    for number in range(1, records.writes + 1):
        inner, ledger = DictRunRecords(), Ledger()
        dying = Node(MortalRecords(inner, die, number, after), ledger)
        runs = flow(dying)
        with pytest.raises(Died):
            dying.add(runs)
        node = Node(inner, ledger)
        node.add(runs)
        assert ledger.added == {run.id for run in runs}
        node.drain()
        ends = {run_id: each.row.status for run_id, each in inner._runs.items()}
        assert ends == {**dict.fromkeys(("a", "b", "join", "hook"), "succeeded"), "rescue": "cancelled"}, number


@pytest.mark.parametrize("after", [False, True])
def test_a_node_that_stalls_anywhere_and_comes_back_harms_nothing(after: bool) -> None:
    for number in range(1, number_of_writes() + 1):
        records, ledger = DictRunRecords(), Ledger()
        sleeping, awake, stop = asleep()
        errors: list[BaseException] = []

        def stalled(node: Node, errors: list[BaseException] = errors) -> None:
            try:
                story(node)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=stalled, args=[Node(MortalRecords(records, stop, number, after), ledger)])
        thread.start()
        assert sleeping.wait(60)
        node = Node(records, ledger, LATER)
        node.drain()
        awake.set()
        thread.join()
        assert errors == [], number
        node.drain()
        Node(records, ledger, 2 * LATER).drain()
        check_end(records, ledger)
