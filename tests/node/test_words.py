"""What a node says of a run that waits again."""

from __future__ import annotations

from msgspec.structs import replace

from mainspring.core.policy import Policy
from mainspring.core.run import Call, Run
from mainspring.node.claiming import _what_follows


def test_a_crash_spends_no_retry_and_a_failure_says_which_one_follows() -> None:
    run = Run(id="r", call=Call("work"), queue="q", policy=Policy(retries=5))
    assert _what_follows(run, replace(run, failures=2)) == "retry 2 of 5 follows"
    crashed = replace(run, policy=Policy(), crashes=1)
    assert _what_follows(crashed, replace(crashed, crashes=2)) == "it is executed again, and no retry is spent"
