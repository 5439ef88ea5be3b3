"""Which part of the suite a store runs here: all of it, or the part that its own code can break.

A store of jobs runs the tests of jobs; its runs are in a store that passes the others elsewhere. Valkey and a cluster
execute the scripts of Redis. `MAINSPRING_CONFORMANCE=whole python3 run.py test -- tests/conformance` runs all of it on
every store.
"""

from __future__ import annotations

import os
from typing import Final

from mainspring.testing.conformance import (
    ChangeConformance,
    ClaimConformance,
    ConcurrencyConformance,
    CountConformance,
    EdgeConformance,
    EndConformance,
    FiringConformance,
    GateConformance,
    InstantConformance,
    JobConformance,
    QueueLimitConformance,
    RateConformance,
    ServiceConformance,
    SettleConformance,
    StoreConformance,
)

WHOLE: Final = os.environ.get("MAINSPRING_CONFORMANCE") == "whole"


class _Jobs(
    JobConformance,
    FiringConformance,
    CountConformance,
    InstantConformance,
    ChangeConformance,
    ServiceConformance,
    EndConformance,
    ConcurrencyConformance,
):
    """What concerns a store that holds only jobs."""


class _Scripts(
    FiringConformance,
    ClaimConformance,
    SettleConformance,
    EdgeConformance,
    GateConformance,
    RateConformance,
    QueueLimitConformance,
):
    """What concerns a server that executes the scripts of another one."""


class JobsPart(StoreConformance if WHOLE else _Jobs):  # type: ignore[misc]
    """The tests of a store that holds only jobs."""


class ScriptsPart(StoreConformance if WHOLE else _Scripts):  # type: ignore[misc]
    """The tests of a server that executes Redis's scripts."""
