"""Execute the bridges between runs that a store keeps apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.core.run import FINAL
from mainspring.core.waiting.bridges import landed
from mainspring.errors import Retry, RunNotFound

if TYPE_CHECKING:
    from mainspring.app.runs import Runs
    from mainspring.app.store import AppStore

__all__ = ["Bridging"]


class Bridging:
    """Gives each landing the end of the run before its bridge; see `core.waiting.bridges`."""

    def __init__(self, app_store: AppStore, runs: Runs) -> None:
        self._app_store, self._runs = app_store, runs

    def cross(self, before_id: str, landing_id: str) -> None:
        """End a landing in the same way as the run before its bridge."""
        store = self._app_store.lasting
        before, landing = store.get_runs([before_id, landing_id])
        if landing is None:
            raise RunNotFound(landing_id, "nothing comes after this bridge yet")
        if landing.status in FINAL:
            return
        if before is None:
            raise RunNotFound(before_id, "so the runs that come after it cannot learn how it ended")
        if before.status not in FINAL:  # a person has sent it back
            raise Retry(1.0, f"{before_id} goes on", counted=False)
        answers = store.settle([store.pack_outcome(landed(landing, before, self._app_store.now()))])
        self._runs.cancel_refused(answers.refused)
