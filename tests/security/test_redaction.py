"""Secrets are stored and passed on, and not shown: S17 of the checklist."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from mainspring import Mainspring
from mainspring.follow import Finished
from mainspring.jobstores.opening import without_password
from mainspring.redact import Secret, masked
from mainspring.registry import TaskCall
from tests.app.kit import LASTING, LIMIT, LOCAL, MakeApp

CANARY = "hunter2-canary"
SECRET_NAMES = ["password", "db_password", "Passwd", "token", "access_token", "client_secret", "api_key", "APIKEY"]
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


def shown(*args: Any, **kwargs: Any) -> str:
    return repr(masked(args, kwargs))


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_has_the_name_of_a_secret_is_hidden_at_any_depth(name: str) -> None:
    said = shown({"deep": [{name: CANARY, "port": 5432}]}, **{name: CANARY, "plain": "visible"})
    assert CANARY not in said
    assert "visible" in said
    assert "5432" in said


@pytest.mark.parametrize("name", ["user", "path", "keyboard", "passenger", "author"])
def test_what_only_sounds_like_it_is_shown(name: str) -> None:
    assert "visible" in shown(**{name: "visible"})


def test_fields_of_objects_and_passwords_in_addresses_are_hidden() -> None:
    said = shown(Login("ada", CANARY), Token("ada", CANARY), Secret(CANARY), f"redis://:{CANARY}@host/0")
    assert CANARY not in said
    assert said.count("ada") == 2
    assert "host" in said


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


def test_a_finished_run_shows_its_hook_nothing_that_would_be_logged_by_mistake(make_app: MakeApp) -> None:
    app = make_app(inline=True)
    seen: list[Finished] = []
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
