"""Secrets are stored and passed on, and not shown: S17 of the checklist."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from rich.pretty import pretty_repr

from mainspring import Mainspring
from mainspring.app.declaring.task import TaskCall
from mainspring.cli import main
from mainspring.core.showing.redaction import Secret, call_text, masked, without_password
from mainspring.core.waiting.followups import FinishedRun
from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_MISSED
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.schedulers.base import BaseScheduler
from mainspring.schedulers.blocking import BlockingScheduler
from tests.app.kit import LASTING, LIMIT, LOCAL, MakeApp

CANARY = "hunter2-canary"
SECRET_NAMES = ["password", "db_password", "Passwd", "token", "access_token", "client_secret", "api_key", "APIKEY"]
SECRET_NAMES += [
    "X-Api-Key",
    "api key",
    "smtp_pass",
    "PASS",
    "db_pwd",
    "auth",
    "jwt",
    "bearer",
    "signing_key",
    "ssh-key",
]
SECRET_NAMES += ["authorization", "Authorization", "private_key", "cookie", "credentials", "aws_secret_access_key"]


@dataclass
class Login:
    user: str
    password: str


class Token(NamedTuple):
    user: str
    api_key: str


def log_in(user: str, password: str) -> str:
    return f"{user} is in"


def fail_to_log_in(user: str, password: str) -> str:
    held = [password, {"of": password}]
    raise ValueError(f"{user} is not in, for {len(held)} reasons")


def shown(*args: Any, **kwargs: Any) -> str:
    return repr(masked(args, kwargs))


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_has_the_name_of_a_secret_is_hidden_at_any_depth(name: str) -> None:
    said = shown({"deep": [{name: CANARY, "port": 5432}]}, **{name: CANARY, "plain": "visible"})
    assert CANARY not in said
    assert "visible" in said
    assert "5432" in said


@pytest.mark.parametrize("name", ["user", "path", "keyboard", "passenger", "author", "passage", "compass", "key"])
def test_what_only_sounds_like_it_is_shown(name: str) -> None:
    assert "visible" in shown(**{name: "visible"})


@pytest.mark.parametrize("kind", [OrderedDict, MappingProxyType, lambda given: defaultdict(str, given)])
def test_what_is_in_a_mapping_of_any_kind_is_hidden(kind: Callable[[dict[Any, str]], Any]) -> None:
    said = shown([kind({"password": CANARY, b"token": CANARY, 1: "visible", "user": "ada"})])
    assert CANARY not in said
    assert "visible" in said
    assert "ada" in said


def test_fields_of_objects_and_passwords_in_addresses_are_hidden() -> None:
    said = shown(Login("ada", CANARY), Token("ada", CANARY), Secret(CANARY), f"redis://:{CANARY}@host/0")
    assert CANARY not in said
    assert said.count("ada") == 2
    assert "host" in said


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_call_in_one_line_hides_what_has_the_name_of_a_secret(name: str) -> None:
    said = call_text("f", ([{name: CANARY}], "visible"), {name: CANARY, "n": 5432}, shown)
    assert CANARY not in said
    assert "visible" in said
    assert "n=5432" in said


def test_a_call_in_one_line_hides_secrets_in_objects_addresses_and_parameters() -> None:
    def log_in(user: str, password: str) -> None: ...

    assert call_text("log_in", ("ada", CANARY), {}, log_in) == "log_in('ada', ***)"
    for value in (Login("ada", CANARY), Token("ada", CANARY), Secret(CANARY), f"redis://:{CANARY}@host/0"):
        assert CANARY not in call_text("f", (value,), {}, shown)
        assert CANARY not in call_text("f", (), {"value": [value]}, shown)
    assert call_text("log_in", ("ada", CANARY), {"n": 1}) == "log_in(n=1, …)"


def test_a_call_in_one_line_is_short_whatever_the_arguments_are() -> None:
    class Big:
        looked = 0

        def __repr__(self) -> str:
            Big.looked += 1
            return "x" * 10

    class Rude:
        def __repr__(self) -> str:
            raise SystemExit(3)

    loop: list[Any] = []
    loop.append(loop)
    values: list[Any] = ["y" * 10**6, b"z" * 10**6, list(range(10**5)), {n: n for n in range(10**5)}, loop, 10**100]
    for value in [*values, [Big()] * 10**5, {"a": [Big()] * 10**5}, (1,), set(), frozenset([1])]:
        assert len(call_text("f", (value, value), {"k": value}, shown)) < 120
    assert Big.looked < 200
    assert call_text("f", (Rude(),), {}, shown) == "f(<Rude whose repr raised SystemExit>)"
    assert call_text("f", ((1,), set(), "a\nb"), {}, shown) == "f((1,), set(), 'a\\nb')"
    assert call_text("f", (1, [2, 3]), {"a": {"b": 4}}, shown) == "f(1, [2, 3], a={'b': 4})"


def test_a_secret_shows_itself_to_nobody_who_does_not_ask() -> None:
    secret = Secret(CANARY)
    assert {repr(secret), str(secret), f"{secret}", f"{secret:>5}", f"{secret!r}"} == {"***"}
    assert secret.value == CANARY
    assert secret == Secret(CANARY)


@LASTING
def test_a_secret_travels_to_the_worker_and_back(app: Mainspring) -> None:
    @app.task
    def take(secret: Secret[str]) -> Secret[str]:
        return Secret(secret.value + "!")

    app.start(work=True)
    assert take.enqueue(Secret(CANARY)).result(timeout=LIMIT).value == f"{CANARY}!"


def test_a_call_hides_secrets_by_the_names_of_its_parameters(make_app: MakeApp) -> None:
    task = make_app().task(log_in)
    calls: list[TaskCall[str]] = [task.call("ada", CANARY), task.call("ada", password=CANARY)]
    for call in calls:
        assert CANARY not in repr(call)
        assert "ada" in repr(call)


@LOCAL
def test_no_log_line_repr_or_traceback_shows_a_canary(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(retries=1, backoff=[0])
    def fail(user: str, password: str) -> None:
        held = f"{password} held in a local variable"
        raise ValueError(f"{user} failed after {len(held)} characters")

    with caplog.at_level(logging.DEBUG):
        app.start(work=True)
        handle = fail.enqueue("ada", password=CANARY)
        view = handle.wait(timeout=LIMIT)
        with pytest.raises(Exception, match="ada failed") as caught:
            handle.result(timeout=0)
        app.add_job(log_in, "interval", hours=1, kwargs={"user": "ada", "password": CANARY}, id="job")
        app.run_now("job").result(timeout=LIMIT)
        app.stop()
    said = [caplog.text, repr(view), repr(handle), str(caught.value), repr(app), *map(repr, app.find())]
    said += [error.traceback for error in view.errors]
    said += [repr(app.get_job("job")), str(app.get_job("job"))]
    assert len(view.errors) == 2
    assert [text for text in said if CANARY in text] == []


@LOCAL
def test_what_signals_and_middleware_are_given_shows_no_canary(app: Mainspring) -> None:
    said: list[str] = []

    def note(*given: Any) -> None:
        for each in given:
            record = getattr(each, "record", each)
            parts = (each, record, getattr(record, "call", None), getattr(record, "policy", None))
            said.extend(show(part) for part in parts for show in (repr, str, pretty_repr))

    app.on("pre_enqueue", note)
    app.on("pre_execute", note)
    app.on("post_execute", lambda run, value, error: note(run, error))

    @app.middleware
    def around(run: Any, call_next: Callable[[], Any]) -> Any:
        note(run)
        return call_next()

    log_in_there = app.task(log_in)
    app.start(work=True)
    first, second = app.chain([log_in_there.call("ada", CANARY), log_in_there.call("bob", password=CANARY)])
    second.result(timeout=LIMIT)
    job = app.add_job(log_in, "interval", hours=1, kwargs={"user": "ada", "password": CANARY}, id="job")
    note(first.fetch(), job, job.call)
    assert len(said) > 40
    assert [text for text in said if CANARY in text] == []


def test_a_finished_run_shows_its_hook_nothing_that_would_be_logged_by_mistake(make_app: MakeApp) -> None:
    app = make_app(inline=True)
    seen: list[FinishedRun] = []
    app.task(name="note")(seen.append)
    app.task(hook="note")(log_in).enqueue("ada", CANARY)
    assert CANARY not in repr(seen[0])
    assert seen[0].args == ("ada", CANARY)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{CANARY}@localhost/0",
        f"postgresql://user:{CANARY}@localhost/db",
        f"postgresql://user:{CANARY}/with@slash@localhost/db",
        f"redis://localhost/0?password={CANARY}",
        f"postgresql://localhost/db?user=me&password={CANARY}&sslmode=require",
    ],
)
def test_an_address_is_shown_without_its_password(make_app: MakeApp, url: str) -> None:
    assert CANARY not in without_password(url)
    assert "localhost" in without_password(url)
    assert CANARY not in repr(make_app(url))


def test_a_store_that_cannot_be_reached_is_named_without_its_password(make_app: MakeApp) -> None:
    for url in (f"redis://:{CANARY}@localhost:1/0", f"postgresql://user:{CANARY}@localhost:1/db"):
        with pytest.raises(ConnectionError) as caught:
            make_app(url).count()
        chain: BaseException | None = caught.value
        while chain is not None:
            assert CANARY not in str(chain)
            chain = chain.__cause__ or chain.__context__


@pytest.mark.parametrize("kind", [BackgroundScheduler, BlockingScheduler])
def test_no_log_line_event_or_listing_of_a_scheduler_shows_a_canary(
    kind: Callable[..., BaseScheduler],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = threading.Event()
    events: list[str] = []

    def listen(event: Any) -> None:
        events.append(repr(event) + str(vars(event)))
        if event.code in (EVENT_JOB_ERROR, EVENT_JOB_MISSED) and getattr(event, "job_id", "") == "fails":
            ended.set()

    scheduler = kind(timezone="UTC")
    scheduler.add_jobstore("sqlalchemy", url=f"sqlite:///{tmp_path}/jobs.db")
    scheduler.add_listener(listen)
    given = {"user": "ada", "password": CANARY}
    scheduler.add_job(log_in, "interval", hours=1, kwargs=given, id="later")
    scheduler.add_job(fail_to_log_in, kwargs=given, id="fails")
    with caplog.at_level(logging.DEBUG):
        runner = threading.Thread(target=scheduler.start)
        runner.start()
        assert ended.wait(LIMIT)
        scheduler.print_jobs()
        jobs = [text for job in scheduler.get_jobs() for text in (repr(job), str(job))]
        scheduler.shutdown()
        runner.join(LIMIT)
    said = [caplog.text, *events, *jobs, *capsys.readouterr()]
    assert "fails" in "".join(said)
    assert [text for text in said if CANARY in text] == []


def test_no_command_shows_a_canary(make_app: MakeApp, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = make_app(url)
    app.task(log_in).enqueue("ada", CANARY)
    app.task(fail_to_log_in).enqueue("ada", password=CANARY)
    app.add_job(log_in, "interval", hours=1, kwargs={"user": "ada", "password": CANARY}, id="job")
    app.start(work=True)
    app.wait([view.id for view in app.find()], LIMIT)
    app.stop()
    urls = [url, f"redis://:{CANARY}@localhost:1/0", f"postgresql://user:{CANARY}@localhost:1/db"]
    for command in ("status", "doctor"):
        for place in urls:
            said = CliRunner().invoke(main, [command, place])
            assert said.output
            assert CANARY not in said.output + repr(said.exception), (command, place)


def test_what_is_stored_is_not_masked_and_so_can_be_run(make_app: MakeApp, tmp_path: Path) -> None:
    """Masking is for eyes: a store has to be kept from whoever may not see what is in it."""
    path = tmp_path / "jobs.db"
    app = make_app(f"sqlite:///{path}")
    app.task(log_in).enqueue("ada", password=CANARY)
    app.close()
    assert CANARY.encode() in b"".join(each.read_bytes() for each in tmp_path.glob("jobs.db*"))
