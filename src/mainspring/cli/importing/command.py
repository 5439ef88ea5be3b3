"""`mainspring import`: take over the jobs of APScheduler 3, or of an exported file. It only reads the source."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import click

from mainspring.cli.common.output import with_progress
from mainspring.cli.common.visible import visible
from mainspring.cli.importing.pickles import read_job
from mainspring.cli.importing.sources import SQL_TABLE, Source, read_source, reported
from mainspring.clock import SystemClock
from mainspring.codec import Codec, Keyring
from mainspring.codec.key_sources import KEY_VARIABLE, find_keyring
from mainspring.core import transitions
from mainspring.core.insight.wording import listed, several
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.run import Status
from mainspring.core.showing.redaction import without_password
from mainspring.core.store_urls import SCHEMES, sqlite_file, store_scheme
from mainspring.core.validation import check_queue
from mainspring.errors import ConflictingIdError, JobLookupError
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.opening import open_store
from mainspring.jobstores.records.packing import RecordPacker
from mainspring.schedulers.portable import import_jobs

__all__ = ["import_"]

_BATCH_JOBS: Final = 200
_PICKLES = """\
APScheduler keeps its jobs as pickles, and unpickling can run code of whoever was able to write to the source.
Only plain types and APScheduler's own classes are opened here, everything else is reported and left alone.
If you trust {source} that far, say so with --allow-pickle."""


@click.command("import")
@click.argument("source")
@click.argument("target")
@click.option("--table", default=SQL_TABLE, show_default=True, help="APScheduler's table; in document stores: jobs.")
@click.option("--jobs-key", default="apscheduler.jobs", show_default=True, help="APScheduler's jobs in Redis.")
@click.option("--run-times-key", default="apscheduler.run_times", show_default=True, help="Its run times in Redis.")
@click.option("--allow-pickle", is_flag=True, help="Open APScheduler's pickles, of known types only.")
@click.option("--trust-classes", multiple=True, metavar="MODULE:CLASS", help="A type in pickles to be opened as well.")
@click.option(
    "--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Keys to sign with, newest first."
)
@click.option("--queue", default=None, help="Hand the jobs to this queue of an app, for its workers to run.")
@click.option("--replace", is_flag=True, help="Overwrite jobs of the same id in the target.")
@click.option("--pause", is_flag=True, help="Import the jobs paused.")
@click.option("--dry-run", is_flag=True, help="Say what would be imported, without opening the target.")
def import_(
    source: str,
    target: str,
    table: str,
    jobs_key: str,
    run_times_key: str,
    allow_pickle: bool,
    trust_classes: tuple[str, ...],
    key_file: Path | None,
    queue: str | None,
    replace: bool,
    pause: bool,
    dry_run: bool,
) -> None:
    """Copy the jobs of APScheduler 3, or of a file made by export_jobs, from SOURCE to the store TARGET.

    SOURCE is the URL of APScheduler's database, Redis, MongoDB, RethinkDB, ZooKeeper or etcd
    (mongodb://host/apscheduler), or the path of a JSON file. It is never changed: stop its scheduler first, or both
    will fire. The jobs keep their executors, which a BackgroundScheduler has; the workers of an app run what is in
    queues: for those, give --queue.

    \b
    Example:
      mainspring import sqlite:///old.db sqlite:///jobs.db --allow-pickle --dry-run
    """
    _check_queue(queue)
    codec = Codec(_keyring(key_file, target, for_app=queue is not None, make=not dry_run))
    refused: list[tuple[str, str]] = []
    if store_scheme(target) == "memory":
        raise click.ClickException("a store in memory ends with this command; name one that lasts")
    if "://" not in source:
        jobs = _from_file(source)
    elif not allow_pickle:
        click.echo(_PICKLES.format(source=without_password(source)), err=True)
        sys.exit(2)
    else:
        pickles = read_source(Source(source, table, jobs_key, run_times_key))
        jobs, refused = _opened(pickles, trust_classes)
    jobs, unfit = _fitting(jobs, codec)
    refused += unfit
    for job_id, reason in refused:
        click.echo(f"job {job_id!r} is left alone: {reason}", err=True)
    for job in jobs:
        if queue is not None:
            job.executor, job.queue = "queue", queue
        if pause:
            job.next_run_time = None
    if dry_run:
        for job in jobs:
            click.echo(visible(_line(job)))
        for line in _to_be_missed(jobs):
            click.echo(visible(line), err=True)
        click.echo(_summary("would be imported", jobs, refused, codec))
    else:
        _write(jobs, target, codec, replace)
        click.echo(_summary("imported", jobs, refused, codec))
    for line in _who_runs(jobs, target, codec):
        click.echo(line)
    if refused:
        sys.exit(1)


def _check_queue(queue: str | None) -> None:
    if queue is not None:
        try:
            check_queue(queue)
        except (TypeError, ValueError) as error:
            raise click.BadParameter(str(error), param_hint="--queue") from None


def _keyring(key_file: Path | None, target: str, *, for_app: bool, make: bool) -> Keyring | None:
    """Return the keys for the target, found as an app finds them.

    Make a key only where an app would make one, so that the app can read the imported jobs at its first start.
    """
    if key_file is not None:
        return Keyring(key_file.read_text().split())
    database = sqlite_file(target)
    if database is None:
        return find_keyring(None, None)
    beside = Path(f"{database}.key").exists()
    if for_app and not beside and not make:
        return find_keyring(None, "memory:")  # sign as an app would, with a temporary key
    return find_keyring(None, target if beside or for_app else None)


# -- reading -------------------------------------------------------------------------------------------------------


def _from_file(path: str) -> list[Job]:
    if not Path(path).is_file():
        raise click.ClickException(f"{path!r} is neither a file nor a URL such as sqlite:///jobs.sqlite")
    try:
        return import_jobs(path)
    except (ValueError, OSError) as error:
        raise click.ClickException(f"{path}: {error}") from error


def _opened(pickles: Sequence[tuple[str, bytes]], trusted: Sequence[str]) -> tuple[list[Job], list[tuple[str, str]]]:
    jobs, refused = [], []
    for job_id, data in with_progress(pickles, "Reading"):
        try:
            jobs.append(read_job(data, trusted))
        except Exception as error:  # foreign bytes: if one job cannot be read, continue with the rest
            refused.append((job_id, f"{type(error).__name__}: {error}"))
    return jobs, refused


def _fitting(jobs: Iterable[Job], codec: Codec) -> tuple[list[Job], list[tuple[str, str]]]:
    """Separate the jobs that can be stored from those that cannot, with the reasons."""
    packer, fitting, refused = RecordPacker(codec), [], []
    for job in jobs:
        try:
            packer.job_row(job)
        except Exception as error:
            refused.append((job.id, str(error)))
        else:
            fitting.append(job)
    return fitting, refused


# -- writing -------------------------------------------------------------------------------------------------------


def _write(jobs: Sequence[Job], target: str, codec: Codec, replace: bool) -> None:
    with reported(target), _store(target, codec) as store:
        if replace:
            _make_way(jobs, store)
        else:
            _refuse_taken(jobs, store, target)
        now = store.beat()
        for job in jobs:
            if not job.timed:
                job.at = job.nominal = job.trigger.next_fire(None, now)
        batches = [jobs[start : start + _BATCH_JOBS] for start in range(0, len(jobs), _BATCH_JOBS)]
        for batch in with_progress(batches, "Writing"):
            try:
                store.add_jobs(batch, replace=replace)
            except ConflictingIdError as error:
                raise click.ClickException(f"{error.job_id!r} was added to the target meanwhile; start again") from None


@contextmanager
def _store(url: str, codec: Codec) -> Iterator[JobStore]:
    store = open_store(url, codec=codec)
    try:
        yield store
    finally:
        store.shutdown()


def _refuse_taken(jobs: Sequence[Job], store: JobStore, target: str) -> None:
    readable, unreadable = store.examine_jobs()
    present = {*(job.id for job in readable), *unreadable, *(job.id for job in store.get_jobs(broken=True).broken)}
    taken = [job.id for job in jobs if job.id in present]
    if taken:
        shown = listed(list(map(repr, taken)), 10)
        raise click.ClickException(
            f"{len(taken)} of the {len(jobs)} jobs are in {without_password(target)} already ({shown});"
            " nothing was imported. --replace overwrites them"
        )


def _make_way(jobs: Sequence[Job], store: JobStore) -> None:
    """Remove broken records with the jobs' ids, and the jobs' runs that wait for an executor."""
    ids = {job.id for job in jobs}
    for job_id in {broken.id for broken in store.get_jobs(broken=True).broken} & ids:
        _remove(job_id, store)
        while store.set_aside(job_id, 0, None):  # one id may have been set aside more than once
            _remove(job_id, store)
    # These runs would count against max_instances forever once the job has moved to a queue.
    queued = {job.id for job in jobs if job.executor == "queue"}
    for name in [queue.name for queue in store.stats().queues if queue.name.startswith(".")]:
        _cancel_waiting(name, queued, store)


def _remove(job_id: str, store: JobStore) -> None:
    with suppress(JobLookupError):
        store.remove_job(job_id)


def _cancel_waiting(queue: str, job_ids: Collection[str], store: JobStore) -> None:
    query, last = RunQuery(status=(Status.PENDING,), queue=queue), None
    while page := store.find_runs(query, after=last, limit=_BATCH_JOBS):
        last = page[-1]
        now = store.beat()
        store.settle([transitions.cancel(run, now) for run in page if run.job_id in job_ids])


# -- showing -------------------------------------------------------------------------------------------------------


def _line(job: Job) -> str:
    moment = "when it is stored" if not job.timed else job.next_run_time or "paused"
    return f"{job.id}  {job.call.func}  {job.trigger}  {moment}"


def _to_be_missed(jobs: Sequence[Job]) -> Iterator[str]:
    """Name the jobs that are overdue by more than their grace time: their fires will be recorded as missed."""
    now = SystemClock().now()
    for job in jobs:
        grace = job.misfire_grace_time
        if job.at is not None and grace is not None and now - job.at > grace * SECOND:
            yield (
                f"job {job.id!r} is overdue since {job.next_run_time} and will not run for it: its grace is "
                f"{grace:g} s; let its own scheduler run it first, or modify the job"
            )


def _summary(verb: str, jobs: Sequence[Job], refused: Sequence[Any], codec: Codec) -> str:
    how = "signed" if codec.signed else "unsigned"
    rest = f", {len(refused)} left alone" if refused else ""
    return f"{several(len(jobs), 'job')} {verb}, {how}{rest}"


def _who_runs(jobs: Sequence[Job], target: str, codec: Codec) -> Iterator[str]:
    """Say what the user must start for the jobs to run."""
    shown = without_password(target)
    executors = sorted({job.executor for job in jobs} - {"queue"})
    if executors:
        scheme = store_scheme(target)
        kind = SCHEMES[scheme].store if scheme in SCHEMES else scheme  # a package's store is named by its scheme
        has = f"the executor{'s' * (len(executors) > 1)} {', '.join(map(repr, executors))}"
        yield f"A scheduler that has {has} runs them: BackgroundScheduler(jobstores="
        yield f'    {{"default": {{"type": "{kind}", "url": "{shown}"{_key_option(codec)}}}}}).start()'
        yield "The workers of an app do not: for those, import with --queue default."
    queues = sorted({job.queue for job in jobs if job.executor == "queue"})
    if queues:
        yield f"The workers of an app on {shown} run them: mainspring worker MODULE:APP -Q {','.join(queues)}"
        if not codec.signed:
            yield f"Without a key those call registered tasks only: @app.task, or set {KEY_VARIABLE} and import again."


def _key_option(codec: Codec) -> str:
    return ', "codec": Codec(Keyring([key]))' if codec.signed else ""
