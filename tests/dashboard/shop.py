"""A shop with a past: jobs that are up, late, down, paused and new, runs in every status, errors, a deploy, acts.

The records are written as a day of work would have left them, so that pages and pictures have something to show.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from mainspring import Mainspring
from mainspring.core.insight.acts import Act, act_id
from mainspring.core.insight.metrics import Tally
from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.policy import Policy
from mainspring.core.run import Beat, Call, Condition, Error, Outcome, Report, Result, Run, Start, Status
from mainspring.jobstores.counting import MetricSums
from mainspring.jobstores.values import NodeInfo, NodeRun

KEY = "the key of the shop in the tests of the dashboard"
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

JOBS = (
    # id, task, schedule, usual seconds
    ("reconcile-stripe", "payments:reconcile", "*/10 * * * *", 22.0),
    ("supplier-sync", "inventory:sync_supplier", "*/15 * * * *", 360.0),
    ("nightly-backup", "ops:backup", "30 2 * * *", 1090.0),
    ("daily-sales", "reports:daily_sales", "0 6 * * *", 72.0),
    ("expire-carts", "carts:expire", "*/5 * * * *", 1.9),
    ("fx-rates", "pricing:load_fx", "5 * * * *", 3.1),
    ("crm-push", "crm:push", "*/20 8-20 * * *", 41.0),
    ("search-reindex", "search:reindex", "0 */4 * * *", 424.0),
    ("newsletter", "mail:send_digest", "0 9 * * mon-fri", 280.0),
    ("ledger-export", "billing:export_ledger", "0 1 * * *", 1980.0),
    ("warehouse-labels", "labels:print_batch", "*/30 * * * *", 4.0),
    ("sitemap", "web:sitemap", "15 4 * * sun", 51.0),
)
QUEUES = ("default", "payments", "media", "mail", "exports")


def make_shop(url: str) -> Mainspring:
    """Make the app, with its tasks and schedules; nothing is stored yet."""
    app = Mainspring(url, name="shop", secret_key=KEY, timezone="Europe/Berlin", queues=QUEUES, lease=3600)

    for job_id, task, cron, _ in JOBS:
        made = app.task(name=f"shop.{task}", queue="payments" if "payments" in task else "default")(_copy(task))
        app.schedule(cron, id=job_id)(made)
    for name, queue in (("media:transcode_clip", "media"), ("media:thumbs", "media"), ("payments:capture", "payments")):
        app.task(name=f"shop.{name}", queue=queue)(_copy(name))
    app.task(name="shop.exports:invoice", queue="exports")(_copy("invoice"))
    return app


def _copy(name: str) -> Any:
    def task(*args: Any, **kwargs: Any) -> None: ...

    task.__name__ = task.__qualname__ = name.rpartition(":")[2]
    return task


def seed(app: Mainspring) -> None:
    """Write a day of work into the shop's store."""
    app.reconcile()
    now = app.now()
    jobs = {job.id: job for job in app.jobs()}
    runs = [run for job_id, _, _, usual in JOBS for run in _past(jobs[job_id], usual, now)]
    runs += _loose(now)
    for start in range(0, len(runs), 500):
        _store(app, runs[start : start + 500])
    app.store.extend([Beat(each[0], "t") for each in _RUNNING], 86_400.0)
    for node in _nodes(now):
        app.store.beat(node, ttl=86_400.0)
    with app.acting("admin", "slower since the media move"):
        app.modify_job("nightly-backup", timeout=3600, misfire_grace_time=7200)
    with app.acting("operator", "printer swap"):
        app.pause_job("warehouse-labels")
    for hours, text in ((9, "deploy 2026.10.24-1"), (0.9, "deploy 2026.10.24-2")):
        at = now - int(hours * HOUR)
        act = Act(
            id=act_id(at, "0" * 12), at=at, verb="mark", kind="app", target="marks", by="ci", details={"text": text}
        )
        app.store.acts([act])


def _store(app: Mainspring, runs: list[Run]) -> None:
    """Write runs as they come and as they end, so that the store counts them; and what nodes would have counted."""
    app.store.add_runs([app.store.pack_run(_before_its_end(run)) for run in runs])
    ended = [run for run in runs if run.finished_at is not None]
    ends = (Outcome(run, Condition.WAITING if run.started_at is None else Condition.HELD) for run in ended)
    assert all(app.store.settle([app.store.pack_outcome(each) for each in ends]))
    app.store.tallies(counted(runs))


def _before_its_end(run: Run) -> Run:
    if run.finished_at is None:
        return run
    if run.started_at is None:
        return _with(run, status=Status.PENDING, finished_at=None, reason=None)
    return _with(run, status=Status.RUNNING, finished_at=None, lease_until=run.finished_at + 24 * HOUR)


def seed_flow(app: Mainspring) -> None:
    """Store a flow that has just begun: five parts, a merge of them, and a report that waits for somebody's word."""
    load, backup = app.as_task("shop.pricing:load_fx"), app.as_task("shop.ops:backup")
    with app.flow("import 7") as flow:
        parts = [flow.add(load.call(currency=name)) for name in ("EUR", "USD", "GBP", "CHF", "SEK")]
        merged = flow.add(app.as_task("shop.search:reindex").call(rates=[part.output for part in parts]))
        flow.add(backup.call(bucket="rates"), after=merged)
        flow.add(app.as_task("shop.reports:daily_sales").call(), after=[merged, flow.signal("approved")])


def counted(runs: list[Run]) -> list[Tally]:
    """Count runs as the nodes that executed them would have."""
    sums = MetricSums()
    for run in runs:
        sums.added([run], run.created_at)
        if run.finished_at is not None:
            result = Result.CANCELLED if run.started_at is None else Result.RETURNED
            report = Report(run, result, started_at=run.started_at or 0, finished_at=run.finished_at)
            sums.settled([(report, Outcome(run, Condition.HELD), True)], run.finished_at)
    return sums.take()


def _past(job: Job, usual: float, now: int) -> Iterator[Run]:
    """Make the runs that a job has left behind."""
    chance = random.Random(job.id)  # how often the other jobs have fired by this hour changes nothing here
    if job.id == "sitemap":  # it is new
        return
    fires: list[int] = []
    at = job.trigger.first_fire(now - (60 * 24 if usual > 60 else 14) * HOUR)
    while at is not None and at < now - MINUTE:
        fires.append(at)
        at = job.trigger.next_fire(at, at)
    down = {"reconcile-stripe": 5}.get(job.id, 0)
    fires = fires[-60:]
    for number, fire in enumerate(fires):
        took = usual * chance.uniform(0.85, 1.2) * (1.35 if job.id == "nightly-backup" and number > 42 else 1)
        failed = number >= len(fires) - down or (job.id in ("nightly-backup", "expire-carts") and number == 49)
        if job.id == "supplier-sync" and number == len(fires) - 1:
            yield _run(job, fire, fire + SECOND, Status.MISSED, reason="above max_instances: 1 run is unfinished")
        elif failed:
            yield _failed(job, fire, took)
        else:
            yield _run(job, fire, fire + int((took + 0.2) * SECOND), Status.SUCCEEDED, result=f"{number} done")


def _run(job: Job, fire: int, ended: int, status: Status, **more: Any) -> Run:
    started = None if status is Status.MISSED else fire + SECOND // 5
    return Run(
        id=f"{job.id}@{job.incarnation}@{fire}",
        token=None if started is None else "t",
        call=Call(job.call.task_name, (), {"since": "14:10"}, job.call.task_name.rpartition(":")[2]),
        queue=job.queue,
        job_id=job.id,
        status=status,
        attempt=0 if started is None else 1,
        created_at=fire,
        fire_time=fire,
        run_at=fire,
        started_at=started,
        finished_at=ended,
        node=None if started is None else "fsn-app-1:2101:aaaa",
        **more,
    )


def _failed(job: Job, fire: int, took: float) -> Run:
    ended = fire + int(took * SECOND)
    errors = tuple(
        Error(
            "shop.payments.APIConnectionError", "api.stripe.com did not answer within 30 s", _STRIPE_TRACE, at, attempt
        )
        for at, attempt in ((fire + 8 * SECOND, 1), (max(ended, fire + 36 * SECOND), 3))
    )
    starts = (
        Start(1, "fsn-app-1:2101:aaaa", fire, fire + SECOND, fire + 8 * SECOND, "raised", fire + 12 * SECOND),
        Start(
            2,
            "fsn-app-2:988:bbbb",
            fire + 12 * SECOND,
            fire + 12 * SECOND,
            fire + 16 * SECOND,
            "lost",
            fire + 31 * SECOND,
        ),
    )
    run = _run(job, fire, ended, Status.FAILED, errors=errors, earlier_starts=starts)
    began = fire + 31 * SECOND
    ended = max(ended, began + 5 * SECOND)
    run = _with(run, started_at=began, finished_at=ended, attempt=3, failures=2, interruptions=1)
    if job.id == "reconcile-stripe":
        given = {"since": "14:10", "until": "14:20", "account": "acct_1KqT", "api_key": "sk_live_hidden"}
        progress = {"done": 1240, "total": 2000, "text": "charges"}
        times = (from_us(began + after * SECOND).astimezone(ZoneInfo("Europe/Berlin")) for after, _ in _LOG)
        log = tuple(f"{at:%Y-%m-%d %H:%M:%S}.204 {line}" for at, (_, line) in zip(times, _LOG, strict=True))
        run = _with(run, call=Call(run.call.task_name, (), given, "reconcile"), log=log, progress=progress)
        run = _with(run, data={"last": "ch_3PqV", "pages": 13})
    return _with(run, policy=Policy(retries=1))


def _with(run: Run, **changes: Any) -> Run:
    import msgspec

    return msgspec.structs.replace(run, **changes)


def _loose(now: int) -> list[Run]:
    """Make the runs that no job fired: the same at any hour, and none that left the growing queue lately."""
    chance = random.Random(7)
    found: list[Run] = []
    for number in range(300):
        bad = number % 40 == 0
        made = now - int(chance.uniform(3_600 if bad else 30, 86_000) * SECOND)
        took = int(chance.uniform(0.1, 2.5) * SECOND)
        order = {"order": 104_000 + number, "api_key": "sk_live_hidden"}
        error = Error("PIL.UnidentifiedImageError", "cannot identify image file", _THUMB_TRACE, made + took, 1)
        found.append(
            Run(
                id=f"loose{number:04}",
                call=Call("shop.media:thumbs" if bad else "shop.payments:capture", (), order, "capture"),
                queue="media" if bad else "payments",
                status=Status.FAILED if bad else Status.SUCCEEDED,
                attempt=1,
                created_at=made,
                run_at=made,
                started_at=made + chance.randrange(SECOND),
                finished_at=made + took + SECOND,
                token="t",
                node="fsn-app-2:988:bbbb",
                errors=(error,) if bad else (),
            )
        )
    found += [_waiting(f"export{n:02}", "shop.exports:invoice", "exports", now - (41 - n) * MINUTE) for n in range(12)]
    found += [_waiting(f"clip{n:02}", "shop.media:transcode_clip", "media", now - n * 11 * SECOND) for n in range(9)]
    later = (_waiting(f"later{n:02}", "shop.payments:capture", "payments", now + (n + 1) * HOUR) for n in range(4))
    found += [_with(run, created_at=now - 40 * MINUTE) for run in later]
    cancelled = _waiting("cancelled01", "shop.media:transcode_clip", "media", now - HOUR)
    found.append(_with(cancelled, status=Status.CANCELLED, finished_at=now - HOUR + MINUTE, reason="wrong preset"))
    retrying = _waiting("retrying01", "shop.payments:capture", "payments", now + 21 * SECOND)
    error = Error("CardNetworkTimeout", "issuer did not answer", _CARD_TRACE, now - 9 * SECOND, 1)
    began = now - MINUTE + SECOND // 5
    start = Start(1, "fsn-app-2:988:bbbb", began, began, now - 9 * SECOND, "raised", retrying.run_at)
    retrying = _with(retrying, created_at=now - MINUTE, attempt=1, failures=1, errors=(error,), earlier_starts=(start,))
    found.append(_with(retrying, policy=Policy(retries=2), call=Call(retrying.call.task_name, (), {"order": 104_240})))
    return found + [_running(each, now) for each in _RUNNING]


_RUNNING: Final[tuple[tuple[str, str, str, str, float, dict[str, Any], float | None], ...]] = (
    # id, task, queue, node, seconds so far, arguments, progress
    ("running01", "media:transcode_clip", "media", "hel-media-1:412:cccc", 146, {"clip": 88_213}, 0.62),
    ("running02", "inventory:sync_supplier", "default", "fsn-app-1:2101:aaaa", 1026, {"supplier": "Nordlicht"}, 0.71),
    ("running03", "payments:capture", "payments", "fsn-app-1:2101:aaaa", 0.4, {"order": 104_239}, None),
    ("running04", "search:reindex", "default", "fsn-app-1:2101:aaaa", 212, {"shard": 3}, 0.5),
    ("running05", "carts:expire", "default", "fsn-app-2:988:bbbb", 1.1, {"since": "14:10"}, None),
)


def _running(what: tuple[str, str, str, str, float, dict[str, Any], float | None], now: int) -> Run:
    run_id, task, queue, node, so_far, given, share = what
    began = now - int(so_far * SECOND)
    done = None if share is None else {"done": int(share * 2000), "total": 2000, "text": "items"}
    return Run(
        id=run_id,
        call=Call(f"shop.{task}", (), given, task.rpartition(":")[2]),
        queue=queue,
        policy=Policy(timeout=1800),
        status=Status.RUNNING,
        attempt=1,
        created_at=began - SECOND // 5,
        run_at=began - SECOND // 5,
        started_at=began,
        node=node,
        token="t",
        lease_until=now + 24 * HOUR,
        progress=done,
    )


_STRIPE_TRACE: Final = """Traceback (most recent call last):
  File "/app/shop/payments/reconcile.py", line 41, in reconcile
    for charge in charges(since, until, after=run.data.get("last")):
  File "/app/shop/payments/reconcile.py", line 88, in charges
    page = client.get("/v1/charges", params, timeout=30)
  File "/app/shop/payments/client.py", line 27, in get
    raise APIConnectionError(f"{host} did not answer within {timeout} s")
shop.payments.APIConnectionError: api.stripe.com did not answer within 30 s
"""
_LOG: Final = (
    # seconds after the start, line
    (0, "INFO shop.payments: going on after charge 620 (ch_3PqT)"),
    (2, "INFO shop.payments: page 7 of 20, 700 charges"),
    (3, "WARNING shop.payments: slow answer: 1.4 s for page 12"),
    (5, "ERROR shop.payments: api.stripe.com did not answer within 30 s"),
)


_CARD_TRACE = (
    'Traceback (most recent call last):\n  File "/app/shop/payments/capture.py", line 33, in capture\n'
    "    answer = network.authorize(order, timeout=20)\nCardNetworkTimeout: issuer did not answer\n"
)
_THUMB_TRACE = (
    'Traceback (most recent call last):\n  File "/app/shop/media/thumbs.py", line 58, in make\n'
    "    image = Image.open(file)\nPIL.UnidentifiedImageError: cannot identify image file\n"
)


def _waiting(run_id: str, task: str, queue: str, at: int) -> Run:
    call = Call(task, (), {"clip": 88_213, "preset": "1080p"}, task.rpartition(":")[2])
    return Run(id=run_id, call=call, queue=queue, created_at=min(at, at), run_at=at)


def _nodes(now: int) -> list[NodeInfo]:
    served = ("default", "payments", "mail")

    def node(name: str, started_at: int, queues: tuple[str, ...], slots: int, done: int, rss: int) -> NodeInfo:
        host, pid, _ = name.split(":")
        mine = tuple(NodeRun(each[0], now - int(each[4] * SECOND)) for each in _RUNNING if each[3] == name)
        return NodeInfo(
            id=name,
            host=host,
            pid=int(pid),
            started_at=started_at,
            queues=queues,
            cluster=f"{host}:{int(pid) - 1}",
            code="2026.10.24-2",
            slots=slots,
            busy=len(mine),
            runs=mine,
            done=done,
            rss=rss,
        )

    return [
        node("fsn-app-1:2101:aaaa", now - HOUR, served, 8, 41_220, 212_000_000),
        node("fsn-app-2:988:bbbb", now - HOUR, served, 8, 38_210, 188_000_000),
        node("hel-media-1:412:cccc", now - 146 * HOUR, ("media",), 4, 1_906, 1_400_000_000),
    ]


def wait_a_day() -> timedelta:
    """Return how long the past of the shop is."""
    return timedelta(days=1)
