"""The conformance suite: every rule of the store contract, as test methods that use nothing but the contract.

With pytest, a store runs it from three lines of a test module:

    class TestMyStore(ContractConformance, NoHistoryConformance):
        @pytest.fixture
        def store(self) -> Iterator[JobStore]:
            ...  # yield an empty store whose shift_clock works, then remove its contents

A store that keeps history inherits `StoreConformance` instead: it adds the rules of `acts` and `tallies`.
"""

from __future__ import annotations

import pytest

_PARTS = (
    "helpers",
    "history",
    "jobs",
    "firing",
    "counting",
    "instants",
    "claims",
    "lanes",
    "leases",
    "settling",
    "changes",
    "edges",
    "gates",
    "rates",
    "service",
    "ends",
    "concurrency",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from mainspring.jobstores.base import JobStore  # noqa: E402
from mainspring.testing.conformance.changes import ChangeConformance, SendBackConformance  # noqa: E402
from mainspring.testing.conformance.claims import ClaimConformance  # noqa: E402
from mainspring.testing.conformance.concurrency import ConcurrencyConformance  # noqa: E402
from mainspring.testing.conformance.counting import CountConformance  # noqa: E402
from mainspring.testing.conformance.edges.order import EdgeConformance  # noqa: E402
from mainspring.testing.conformance.edges.races import EdgeRaceConformance  # noqa: E402
from mainspring.testing.conformance.edges.upkeep import EdgeUpkeepConformance  # noqa: E402
from mainspring.testing.conformance.ends import EndConformance  # noqa: E402
from mainspring.testing.conformance.firing import FiringConformance  # noqa: E402
from mainspring.testing.conformance.gates import GateConformance  # noqa: E402
from mainspring.testing.conformance.history.acts import ActConformance  # noqa: E402
from mainspring.testing.conformance.history.missing import NoHistoryConformance  # noqa: E402
from mainspring.testing.conformance.history.tallies import TallyConformance  # noqa: E402
from mainspring.testing.conformance.instants import InstantConformance  # noqa: E402
from mainspring.testing.conformance.jobs import JobConformance  # noqa: E402
from mainspring.testing.conformance.lanes import LaneConformance, LaneGateConformance  # noqa: E402
from mainspring.testing.conformance.leases import LeaseConformance  # noqa: E402
from mainspring.testing.conformance.rates import QueueLimitConformance, RateConformance  # noqa: E402
from mainspring.testing.conformance.service import ServiceConformance  # noqa: E402
from mainspring.testing.conformance.settling import SettleConformance  # noqa: E402

__all__ = [
    "ActConformance",
    "ChangeConformance",
    "ClaimConformance",
    "ConcurrencyConformance",
    "ContractConformance",
    "CountConformance",
    "EdgeConformance",
    "EdgeRaceConformance",
    "EdgeUpkeepConformance",
    "EndConformance",
    "FiringConformance",
    "GateConformance",
    "HistoryConformance",
    "InstantConformance",
    "JobConformance",
    "LaneConformance",
    "LaneGateConformance",
    "LeaseConformance",
    "NoHistoryConformance",
    "QueueLimitConformance",
    "RateConformance",
    "SendBackConformance",
    "ServiceConformance",
    "SettleConformance",
    "StoreConformance",
    "TallyConformance",
]


class ContractConformance(
    JobConformance,
    FiringConformance,
    CountConformance,
    InstantConformance,
    ClaimConformance,
    LaneConformance,
    LaneGateConformance,
    LeaseConformance,
    SettleConformance,
    ChangeConformance,
    EdgeConformance,
    EdgeUpkeepConformance,
    SendBackConformance,
    EdgeRaceConformance,
    GateConformance,
    RateConformance,
    QueueLimitConformance,
    ServiceConformance,
    EndConformance,
    ConcurrencyConformance,
):
    """Tests of the methods that every store has. Provide a fixture named `store`."""


class HistoryConformance(ActConformance, TallyConformance):
    """Tests for a store that overrides `acts` and `tallies`."""

    def test_the_store_says_that_it_keeps_history(self, store: JobStore) -> None:
        assert store.keeps_history


class StoreConformance(ContractConformance, HistoryConformance):
    """All tests, for a store that keeps history. Provide a fixture named `store`."""
