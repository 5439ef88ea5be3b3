"""An app whose key is set later, taken away again, and what was set aside meanwhile."""

from __future__ import annotations

from itertools import count

import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.app.insight.doctor import Mark, diagnose
from mainspring.cli import main
from mainspring.core.run import Status
from mainspring.errors import ConflictingIdError
from tests.app.kit import KEY, LIMIT, MakeApp

SHARED = pytest.mark.parametrize("url", ["postgresql", "redis"], indirect=True)
_names = count(1)


@pytest.fixture
def name() -> str:
    return f"keys{next(_names)}"


def same(value: str = "default") -> str:
    return value


def declared(app: Mainspring) -> Mainspring:
    app.schedule("interval", hours=1, id="hourly")(app.task(same))
    return app


@SHARED
def test_a_declared_schedule_that_was_stored_unsigned_is_signed_anew(url: str, name: str, make_app: MakeApp) -> None:
    first = declared(make_app(url, name=name))
    first.start()
    first.pause_job("hourly")
    first.close()
    signed = declared(make_app(url, name=name, secret_key=KEY))
    signed.start()
    assert signed.broken() == []
    assert signed.get_job("hourly").next_run_time is None  # what people paused stays so
    assert signed.resume_job("hourly") is not None


@SHARED
def test_an_unsigned_schedule_is_signed_from_the_code_never_from_its_bytes(
    url: str, name: str, make_app: MakeApp
) -> None:
    enemy = declared(make_app(url, name=name))
    enemy.start()
    enemy.modify_job("hourly", kwargs={"value": "forged"})
    enemy.close()
    app = declared(make_app(url, name=name, secret_key=KEY))
    app.start(work=True)
    assert app.run_now("hourly").result(timeout=LIMIT) == "default"


@SHARED
def test_a_node_starts_without_a_key_after_one_with_a_key_has_set_its_jobs_aside(
    url: str, name: str, make_app: MakeApp
) -> None:
    before = make_app(url, name=name)
    before.task(same)
    before.add_job(same, "interval", hours=1, id="job")
    before.close()
    signed = make_app(url, name=name, secret_key=KEY)
    signed.task(same)
    assert signed.jobs() == []
    signed.add_job(same, "interval", hours=1, id="job")
    signed.close()
    again = make_app(url, name=name)
    again.task(same)
    again.start(work=True)
    assert again.enqueue(same, "works").result(timeout=LIMIT) == "works"
    again.close()
    signed = make_app(url, name=name, secret_key=KEY)
    assert [job.id for job in signed.jobs()] == ["job"]
    with pytest.raises(ConflictingIdError):
        signed.restore("job")
    [finding] = [each for each in diagnose(signed).findings if each.subject == "broken"]
    assert (finding.mark, "broken discard" in finding.advice) == (Mark.WARNING, True)
    assert "restore" not in finding.advice
    assert signed.discard("job") is True
    assert signed.broken() == []
    assert signed.discard("job") is False
    assert [job.id for job in signed.jobs()] == ["job"]


@SHARED
def test_a_broken_run_can_be_discarded_and_no_other_run_can(url: str, name: str, make_app: MakeApp) -> None:
    unsigned = make_app(url, name=name)
    run = unsigned.task(same).enqueue()
    unsigned.close()
    app = make_app(url, name=name, secret_key=KEY)
    app.task(same)
    app.start(work=True)
    assert app.wait([run.id], LIMIT)[0].status is Status.BROKEN
    good = app.enqueue(same)
    good.wait(LIMIT)
    assert app.discard(good.id) is False
    assert app.discard(run.id) is True
    assert app.broken() == []
    assert app.count() == 1


@pytest.mark.parametrize("url", ["redis"], indirect=True)
def test_the_command_line_lists_restores_and_discards_what_was_set_aside(
    url: str, name: str, make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = make_app(url, name=name)
    before.task(same)
    for job_id in ("one", "two\x1b[31m"):
        before.add_job(same, "interval", hours=1, id=job_id)
    before.close()
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", KEY)
    signed = make_app(url, name=name)
    signed.task(same)
    assert signed.jobs() == []
    signed.add_job(same, "interval", hours=1, id="one")

    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["broken", *arguments, "--name", name])
        return result.exit_code, result.output

    code, text = call("list", url)
    assert (code, text.count("unsigned: "), "\x1b" in text) == (0, 2, False)
    assert "job  one  2" in text
    code, text = call("restore", "one", "--app", url)
    assert (code, "another job has that id" in text) == (1, True)
    assert call("discard", "one", "two\x1b[31m", "--app", url) == (0, "discarded one\ndiscarded two\\x1b[31m\n")
    assert call("list", url) == (0, "nothing is set aside\n")
    code, text = call("discard", "one", "--app", url)
    assert (code, "nothing of that id is set aside" in text) == (1, True)
    assert [job.id for job in signed.jobs()] == ["one"]
