"""What a worker notes on its board is what another process reads from it."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mainspring.cluster.settings import Settings
from mainspring.executors.scoreboard import Scoreboard, make_board

Boards = tuple[Scoreboard, Scoreboard]
ENTRIES = 100


@pytest.fixture
def boards() -> Iterator[Boards]:
    with closing(make_board(ENTRIES)) as ours, closing(Scoreboard(os.dup(ours.fileno()))) as theirs:
        yield ours, theirs


def test_what_starts_and_ends_is_seen_from_outside(boards: Boards) -> None:
    ours, theirs = boards
    ours.enter("plain", None)
    ours.enter("apart", 60, apart=True)
    ours.enter("ended", 60)
    ours.end("ended")
    seen = {posted.run_id: posted for posted in theirs.read(())}
    assert [(posted.ended, posted.apart) for posted in seen.values()] == [(False, False), (False, True), (True, False)]
    assert seen["plain"].deadline == seen["ended"].deadline == math.inf
    assert seen["apart"].deadline < math.inf


def test_what_the_store_knows_is_taken_off_and_its_place_used_again(boards: Boards) -> None:
    ours, theirs = boards
    for _ in range(3 * ENTRIES):
        ours.enter("a run", 1)
        ours.end("a run")
        assert ours.forget("a run")
    assert theirs.read(()) == []
    assert not ours.forget("a run")


def test_the_late_end_of_a_run_that_was_given_up_marks_no_other(boards: Boards) -> None:
    ours, theirs = boards
    ours.enter("given up", 1)
    ours.forget("given up")
    ours.enter("next", 1)
    ours.end("given up")
    assert [(posted.run_id, posted.ended) for posted in theirs.read(())] == [("next", False)]


@pytest.mark.parametrize("length", [1, 255, 256, 257, 1500, 1536, 1537, 5000])
def test_ids_of_every_length_are_whole(boards: Boards, length: int) -> None:
    ours, theirs = boards
    run_id = "ü" * (length // 2) + "x" * (length % 2)
    ours.enter(run_id, None, apart=True)
    ours.end(run_id)
    (posted,) = theirs.read([f"{run_id}~1", run_id, "another"])
    assert (posted.run_id, posted.ended, posted.apart) == (run_id, True, True)


def test_a_full_board_harms_nobody(boards: Boards) -> None:
    ours, theirs = boards
    for number in range(ENTRIES + 1):
        ours.enter(str(number), None)
    ours.end(str(ENTRIES))
    assert not ours.forget(str(ENTRIES))
    assert len(theirs.read(())) == ENTRIES


def test_a_board_has_no_name_that_a_kill_could_leave_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)  # as on systems that lack it
    with closing(make_board(ENTRIES)) as ours, closing(Scoreboard(os.dup(ours.fileno()))) as theirs:
        ours.enter("run", None)
        assert [posted.run_id for posted in theirs.read(())] == ["run"]
        assert os.listdir(tmp_path) == []


def test_a_cluster_of_many_coroutines_has_an_entry_for_each() -> None:
    many = 20_000
    size = Settings(app="jobs:app", coroutines=many).entries
    with closing(make_board(size)) as ours, closing(Scoreboard(os.dup(ours.fileno()))) as theirs:
        for number in range(many):
            ours.enter(str(number), None)
        assert [posted.run_id for posted in theirs.read(())] == [str(number) for number in range(many)]
        for number in range(many - 1):
            ours.forget(str(number))
        assert [posted.run_id for posted in theirs.read(())] == [str(many - 1)]
