"""`diagnose` finds what is wrong with a store and its nodes, and says what to do. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import tzinfo
from enum import StrEnum
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.app.insight.gathering import recent_runs
from mainspring.codec.key_sources import KEY_VARIABLE
from mainspring.core.insight.health import usual_duration
from mainspring.core.insight.runs import place_of_run
from mainspring.core.insight.wording import duration, held_runs, several
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.references import ref_to_obj
from mainspring.core.run import HELD_PREFIX, WAITING, Run, Status, is_local
from mainspring.core.schedules.linting import issues_of, issues_together
from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError, MainspringError, TaskNotFound, near
from mainspring.jobstores.base import Health, JobStore, NodeInfo, QueueInfo, RunQuery
from mainspring.jobstores.finding import pages
from mainspring.jobstores.health import lacks
from mainspring.jobstores.opening import absent_file

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = [
    "EXAMPLES_SHOWN",
    "OVERDUE_US",
    "Diagnosis",
    "Finding",
    "Mark",
    "diagnose",
    "function_finder",
    "waiting_runs",
]

EXAMPLES_SHOWN: Final = 3
"""Name at most this many examples."""
PENDING_PAGE_RUNS: Final = 1000
MOST_LINTED: Final = 1000
"""Look for mistakes in the schedules of at most this many jobs."""
MOST_PENDING_PAGES: Final = 10
"""Look through at most this many pages of pending runs, newest first."""
OVERDUE_US: Final = 30_000_000
"""A job is overdue this many microseconds after its time: a lease, and time for a node to notice."""
CLOCK_SKEW_US: Final = 1_000_000
"""Report clocks that differ by more than this many microseconds."""
REACH: Final = "see that the server runs, and that the URL has the right host, port, user and password"


class Mark(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: its state, and what to do."""

    mark: Mark
    subject: str
    text: str
    advice: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings, and the level of durability in force."""

    where: str
    level: str
    findings: tuple[Finding, ...]
    reachable: bool = True
    """Whether the store answered."""

    def count(self, mark: str) -> int:
        """Return the number of findings with a mark."""
        return sum(finding.mark == mark for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.count(Mark.PROBLEM)


def diagnose(
    app: Mainspring, *, code: bool = True, require: str | None = None, path: str | None = None, alone: bool = False
) -> Diagnosis:
    """Look at an app's store and nodes.

    `code` says that the app has its tasks, so stored records can be compared with them. Without `code`, only the
    reports of the nodes count. `require` is the lowest acceptable durability, by default the app's own. The advice
    names `path` as the place where workers find the app. `alone` says that this process does nothing else with the app:
    if its key file is gone, use a temporary key instead of making a new key file.
    """
    where = without_password(app.url)
    if (absent := absent_file(app.url)) is not None:
        finding = Finding(Mark.PROBLEM, "store", f"there is no file {absent}", "correct the URL, or start the app once")
        return Diagnosis(where, "unknown", (finding,))
    absent_key = app.absent_key
    if absent_key is not None and alone:
        app._app_store.use_throwaway_key()
    level, findings, reachable = "unknown", list[Finding](), True
    try:
        store = app.store
        health = store.health()
        level = health.level
        findings += _health(where, health, require or app.require)
        findings += _clock(store)
        findings += _key(app, absent_key)
        now, path = store.beat(), path or _path(app, code)
        nodes = [node.seen_at(now, app.lease) for node in store.nodes()]
        findings += _nodes(nodes, now, app.lease)
        findings += _queues(store.stats().queues, nodes, path)
        jobs, unreadable = store.examine_jobs()
        findings += _broken(store, {*(job.id for job in jobs), *unreadable}, path)
        findings += _reported(nodes)
        findings += _schedules(jobs, store.due(0, 0).next_at, nodes, now, path)
        findings += _lint(store, [job for job in jobs if job.at is not None][:MOST_LINTED], now, app.timezone)
        findings += _contents(app, store, jobs, unreadable, code)
    except (MainspringError, OSError) as error:
        reachable = not isinstance(error, OSError)  # StoreUnavailable is one
        findings.append(Finding(Mark.PROBLEM, "store", f"{type(error).__name__}: {error}", "" if reachable else REACH))
    return Diagnosis(where, level, tuple(findings), reachable)


# -- the store -----------------------------------------------------------------------------------------------------


def _health(where: str, health: Health, require: str | None) -> Iterator[Finding]:
    schema = "" if health.schema is None else f", schema {health.schema}"
    yield Finding(Mark.OK, "store", f"{health.version or 'it answers'} at {where}{schema}")
    text = f"{health.level}: {'; '.join(health.reasons)}"
    if require is not None and lacks(health, require):
        yield Finding(Mark.PROBLEM, "durability", text, f"the app has require={require!r} and will not start")
    else:
        yield Finding(Mark.OK if health.durable or health.replicas else Mark.WARNING, "durability", text)
    for warning in health.warnings:
        yield Finding(Mark.WARNING, "settings", warning)


def _clock(store: JobStore) -> Iterator[Finding]:
    """Compare the clocks; the error is at most half of the shortest round trip."""
    trips = []
    for _ in range(3):
        before = time.time_ns()
        told = store.beat() * 1000
        after = time.time_ns()
        trips.append((after - before, told - (before + after) // 2))
    trip, skew = min(trips)
    error = trip / 2e6
    if abs(skew) - trip // 2 <= CLOCK_SKEW_US * 1000:
        text = f"the store's clock and this machine's differ by {abs(skew) / 1e6:.0f} ms, give or take {error:.1f} ms"
        yield Finding(Mark.OK, "clock", text)
        return
    side = "ahead of" if skew > 0 else "behind"
    yield Finding(
        Mark.WARNING,
        "clock",
        f"the store's clock is {abs(skew) / 1e9:.1f} s {side} this machine's, give or take {error:.0f} ms",
        "the store's decides when runs are due; set both by NTP, else the times that people see and give are off",
    )


def _key(app: Mainspring, absent: Path | None) -> Iterator[Finding]:
    if absent is not None:
        text, advice = f"the database is there, and its key file {absent} is not", f"put it back, or set {KEY_VARIABLE}"
        yield Finding(Mark.WARNING, "key", text, f"{advice} to the key of the app")
    elif app.codec.signed or app.store.volatile:
        yield Finding(Mark.OK, "key", "stored records are signed")
    else:
        yield Finding(
            Mark.WARNING,
            "key",
            "this process has no signing key: anybody who can write to the store decides which functions run",
            "set MAINSPRING_SECRET_KEY, or give the app secret_key=",
        )


# -- nodes and queues ----------------------------------------------------------------------------------------------


def _nodes(nodes: list[NodeInfo], now: int, lease: float) -> Iterator[Finding]:
    for node in nodes:
        every, name, silent = node.every or lease / 3, f"node {node.host}:{node.pid}", (now - node.beat_at) / 1e6
        if node.state == "silent":
            yield Finding(
                Mark.WARNING,
                "nodes",
                f"{name} sent its last heartbeat {silent:.0f} s ago, and should send one every {every:g} s",
                "check that it lives and reaches the store; other nodes take over its runs when their leases end",
            )
        if node.stuck:
            text = f"{name} has lost {node.stuck} threads to runs that did not end when they were stopped"
            yield Finding(Mark.WARNING, "nodes", text, "restart it, and give such tasks isolation='process'")
    alive = sum(node.state != "silent" for node in nodes)
    yield Finding(Mark.OK, "nodes", f"{several(alive, 'node is', 'nodes are')} alive")


def _path(app: Mainspring, code: bool) -> str:
    """Return where workers find an app, as far as this process knows."""
    from mainspring.app.loading.locating import path_of

    with suppress(ConfigurationError):
        if code:
            return path_of(app)
    return "MODULE:APP"


def _queues(queues: list[QueueInfo], nodes: list[NodeInfo], path: str) -> Iterator[Finding]:
    served = {queue for node in nodes if node.state not in ("draining", "silent") for queue in node.queues}
    fine = True
    for queue in queues:
        if queue.name.startswith(HELD_PREFIX):  # no node serves these
            continue
        name, local = place_of_run(queue.name), is_local(queue.name)
        waiting = held_runs(queue.waiting, queue.delayed)
        if queue.paused:
            fine = False
            yield Finding(Mark.WARNING, "queues", f"{name} is paused, with {waiting}", "resume it when it may go on")
        elif queue.name not in served and queue.waiting + queue.delayed:
            fine = False
            how = "start a scheduler that has it" if local else f"start one: mainspring worker {path} -Q {queue.name}"
            mark = Mark.PROBLEM if queue.waiting else Mark.WARNING
            yield Finding(mark, "queues", f"{name} has {waiting}, and no living node serves it", how)
    if fine:
        yield Finding(Mark.OK, "queues", "every queue that has runs is served")


def _schedules(
    jobs: Sequence[Job], next_at: int | None, nodes: list[NodeInfo], now: int, path: str
) -> Iterator[Finding]:
    """Look for overdue jobs, unreadable ones included, and for a node that fires jobs."""
    waiting = sorted((job.at, repr(job.id)) for job in jobs if job.at is not None)
    if next_at is not None and (not waiting or next_at < waiting[0][0]):
        waiting.insert(0, (next_at, "that cannot be read here"))
    overdue = [(at, job_id) for at, job_id in waiting if now - at > OVERDUE_US]
    firing = any(node.state == "running" for node in nodes)
    how = f"start a node: mainspring worker {path}, or app.start() in your program"
    if overdue:
        at, job_id = overdue[0]
        more = f", and {several(len(overdue) - 1, 'other job', 'other jobs')}" if len(overdue) > 1 else ""
        why = "no living node could fire it" if not firing else "the living nodes do not fire it"
        text = f"the job {job_id} is {duration(now - at)} overdue{more}: {why}"
        elsewhere = "look at the logs of the nodes; a node started with --no-schedule fires nothing"
        yield Finding(Mark.PROBLEM, "schedules", text, elsewhere if firing else how)
    elif waiting and not firing:
        at, job_id = waiting[0]
        number = several(len(waiting), "job", "jobs")
        text = f"no living node could fire {number}; the next is the job {job_id}, in {duration(at - now)}"
        yield Finding(Mark.WARNING, "schedules", text, how)
    else:
        paused = sum(job.at is None for job in jobs)
        text = f"no job is overdue; {len(waiting):,} wait for their time, {several(paused, 'is', 'are')} paused"
        yield Finding(Mark.OK, "schedules", text)


def _lint(store: JobStore, jobs: list[Job], now: int, zone: tzinfo) -> Iterator[Finding]:
    """Yield the probable mistakes in schedules."""
    runs = recent_runs(store, jobs)
    for job in jobs:
        usual = usual_duration(runs[job.id])
        for issue in issues_of(job, now, None if usual is None else usual / SECOND):
            yield Finding(Mark.WARNING, "schedules", f"the job {job.id!r}: {issue.text}", issue.advice)
    for issue in issues_together(jobs, now, zone):
        yield Finding(Mark.WARNING, "schedules", issue.text, issue.advice)


# -- records -------------------------------------------------------------------------------------------------------


def _broken(store: JobStore, taken: set[str], path: str) -> Iterator[Finding]:
    """Yield the records that were set aside; a job cannot be restored if another job has its id by now."""
    broken = {job.id: job.reason for job in store.get_jobs(broken=True).broken}
    jobs = {job_id: reason for job_id, reason in broken.items() if job_id not in taken}
    replaced = {job_id: reason for job_id, reason in broken.items() if job_id in taken}
    query = RunQuery(status=(Status.BROKEN,))
    number = store.stats(query).matching
    runs = {run.id: run.reason or "" for run in store.find_runs(query, limit=EXAMPLES_SHOWN)} if number else {}
    repair = f"mend the cause, then run mainspring broken restore ID --app {path}; or give up: broken discard"
    for word, total, reasons in (("job", len(jobs), jobs), ("run", number, runs)):
        if total:
            text = f"{several(total, f'{word} was', f'{word}s were')} set aside: {_examples(reasons, total)}"
            yield Finding(Mark.PROBLEM, "broken", text, repair)
    if replaced:
        text = f"{several(len(replaced), 'job was', 'jobs were')} set aside and replaced since: {_examples(replaced)}"
        repair = f"if the new ones are right: mainspring broken discard ID --app {path}"
        yield Finding(Mark.WARNING, "broken", text, repair)
    if not broken and not number:
        yield Finding(Mark.OK, "broken", "no record was set aside")


def _reported(nodes: list[NodeInfo]) -> Iterator[Finding]:
    """Yield the functions that living nodes report as not callable."""
    workers = [node for node in nodes if node.queues]
    for name in sorted({name for node in nodes for name in node.missing}):
        lacking = [node for node in nodes if name in node.missing]
        where = ", ".join(f"{node.host}:{node.pid}" for node in lacking[:EXAMPLES_SHOWN])
        everywhere = all(node in lacking for node in workers)
        yield Finding(
            Mark.PROBLEM if everywhere else Mark.WARNING,
            "tasks",
            f"{name!r} cannot be called by {'any' if everywhere else 'this'} node: {where}",
            "its runs wait; deploy the code there, or register the task",
        )


def _contents(
    app: Mainspring, store: JobStore, jobs: list[Job], unreadable: dict[str, str], code: bool
) -> Iterator[Finding]:
    """Check that this process can read the jobs and pending runs, and knows the functions they call."""
    runs, complete = waiting_runs(store)
    unreadable = unreadable | {run.id: run.reason or "" for run in runs if run.call.func == ""}
    if unreadable:
        text = f"{several(len(unreadable), 'record', 'records')} cannot be read here: {_examples(unreadable)}"
        advice = "a worker would set them aside; give the app the key that signed them, and the code they need"
        if all(reason.startswith("unsigned") for reason in unreadable.values()):
            advice = (
                "they were stored without a key and would be set aside: enqueue or add them again with the key; "
                "when the app starts, it signs the schedules that the code declares"
            )
        if not code:
            advice = "to check them, set MAINSPRING_SECRET_KEY, or name the app instead of the URL"
        yield Finding(Mark.PROBLEM if code else Mark.WARNING, "records", text, advice)
    if not code:
        return
    calls: dict[tuple[str, bool], Any] = {}
    records: list[tuple[Any, bool]] = [(job, job.executor != "queue") for job in jobs]
    records += [(run, is_local(run.queue)) for run in runs if not run.queue.startswith(HELD_PREFIX)]  # uncalled
    for each, local in records:
        if isinstance(each.call.func, str) and each.call.func:
            calls.setdefault((each.call.func, local), each)
    find = function_finder(app)
    found = [
        _unknown(app, name, partial(ref_to_obj, name) if local else partial(find, each))
        for (name, local), each in calls.items()
    ]
    yield from filter(None, found)
    if not any(found):
        newest = "" if complete else f" (the newest {len(runs):,} were checked)"
        yield Finding(Mark.OK, "tasks", f"this process knows every function that jobs and waiting runs call{newest}")


def waiting_runs(store: JobStore) -> tuple[list[Run], bool]:
    """Return the newest waiting runs, and whether these are all waiting runs."""
    found = islice(pages(store, RunQuery(status=WAITING), size=PENDING_PAGE_RUNS), MOST_PENDING_PAGES)
    runs = list(chain.from_iterable(found))
    return runs, len(runs) < MOST_PENDING_PAGES * PENDING_PAGE_RUNS


def function_finder(app: Mainspring) -> Callable[[Any], Any]:
    """Return a function that finds the function of a record as a worker would."""
    from mainspring.app.placement import Workplace

    return Workplace(app, threads=1).find


def _unknown(app: Mainspring, name: str, find: Callable[[], Any]) -> Finding | None:
    """Look a function up as a worker would."""
    try:
        find()
    except Exception as error:  # importing executes the user's code: it may raise anything
        advice = f"register it with @app.task, or deploy its module{near(name, [task.name for task in app.tasks])}"
        why = error.__cause__ if isinstance(error, TaskNotFound) and error.__cause__ is not None else error
        return Finding(Mark.PROBLEM, "tasks", f"{name!r} is stored and cannot be called here: {why}", advice)
    return None


def _examples(reasons: dict[str, str], total: int | None = None) -> str:
    more = (len(reasons) if total is None else total) - EXAMPLES_SHOWN
    named = "; ".join(f"{key!r} ({reason})" for key, reason in list(reasons.items())[:EXAMPLES_SHOWN])
    return f"{named} and {more} more" if more > 0 else named
