"""The back end of a store of bytes: it writes and reads rows, and does not interpret their bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from mainspring.core.lanes import Want
from mainspring.core.run import Run
from mainspring.jobstores.base import Answers, BrokenJob, Hold, JobStore, RunQuery
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.records.rows import BeatRow, FireRow, JobRow, RunRow, SettleRow

__all__ = ["RowStore"]


class RowStore(JobStore):
    """A store of rows. `RecordStore` builds the verbs about jobs and runs on these methods.

    A back end implements them and the rest of `JobStore`.
    """

    def _set_altered_aside(self, run_ids: Sequence[str], job_ids: Sequence[str]) -> int:
        """Set aside altered records, including those with these ids; return how many."""
        return 0

    @abstractmethod
    def _add_job_rows(self, rows: Sequence[JobRow], replace: bool) -> list[tuple[int, int]]:
        """Write jobs, all or none; return the version and incarnation of each."""

    @abstractmethod
    def _update_job_row(self, row: JobRow) -> int:
        """Replace a job if its stored version is that of the row; return the new version."""

    @abstractmethod
    def _job_rows(self, job_ids: Sequence[str] | None) -> list[JobRow]:
        """Read the jobs with these ids (None: all) by next run time, paused ones last."""

    @abstractmethod
    def _broken_jobs(self) -> list[BrokenJob]:
        """Read the jobs that were set aside, oldest first."""

    @abstractmethod
    def _due_rows(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        """Return the store's now, the rows of due jobs, and the time when the next other job is available."""

    @abstractmethod
    def _fire_rows(self, firings: Sequence[FireRow], lease: float) -> Answers[tuple[str, ...] | None]:
        """Fire; see `JobStore.fire`."""

    @abstractmethod
    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        """Add runs; see `JobStore.add_runs`."""

    @abstractmethod
    def _claim_rows(
        self, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        """Claim runs; return the rows after the claim, most urgent first."""

    def _keep_claim(self, token: str) -> None:
        """Make a claim survive a crash of the server, before runs start that may start only once."""

    @abstractmethod
    def _extend_rows(self, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
        """Renew leases; see `JobStore.extend`."""

    @abstractmethod
    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        """Settle; see `JobStore.settle`."""

    @abstractmethod
    def _lapsed_rows(self, limit: int, skip: int) -> list[RunRow]:
        """Read running runs whose lease is over, in a stable order, without the first `skip`."""

    @abstractmethod
    def _add_act_rows(self, rows: Sequence[ActRow], oldest: str) -> None:
        """Keep acts; delete those before the id `oldest`, and the oldest beyond `MOST_ACTS`."""

    @abstractmethod
    def _find_act_rows(self, about: str | None, after: str | None, limit: int) -> list[ActRow]:
        """Read acts with ids before `after`, newest first."""

    @abstractmethod
    def _run_rows(self, run_ids: Sequence[str]) -> list[RunRow]:
        """Read runs by id, in any order."""

    @abstractmethod
    def _find_run_rows(self, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
        """Read the matching runs that follow `after` in the order of (created_at, id), newest first."""
