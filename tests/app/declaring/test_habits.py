"""Names from other libraries, and names with a typo, lead to ours."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.app.declaring import habits
from mainspring.app.declaring.task import OPTIONS, Task
from mainspring.app.handle import RunHandle


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("memory://")


def given(name: str) -> dict[str, Any]:
    return {name: 3}


def send(to: str, times: int = 1) -> str:
    return to * times


class TestAttributes:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("apply_async", r"here it is task\.options\(delay=5, queue='mail'\)\.enqueue"),
            ("s", r"task\.call\("),
            ("retry", r"retries=3"),
            ("enqueue_in", r"options\(delay=5\)"),
            ("enqueu", r"did you mean 'enqueue'"),
        ],
    )
    def test_a_task_says_what_it_is_called_here(self, app: Mainspring, name: str, says: str) -> None:
        with pytest.raises(AttributeError, match=f"'Task' object has no attribute '{name}'; .*{says}"):
            getattr(app.task(send), name)

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("send_task", "app.enqueue"),
            ("shared_task", "@app.task"),
            ("autodiscover_tasks", "include="),
            ("add_periodic_task", "@app.schedule"),
            ("get_jobs", r"app\.jobs\(\)"),
            ("fnd", "did you mean 'find'"),
        ],
    )
    def test_an_app_does(self, app: Mainspring, name: str, says: str) -> None:
        with pytest.raises(AttributeError, match=f"'Mainspring' object has no attribute '{name}'; .*{says}"):
            getattr(app, name)

    def test_a_handle_does(self, app: Mainspring) -> None:
        with pytest.raises(AttributeError, match=r"no attribute 'get'; here it is handle\.result\(timeout=\.\.\.\)"):
            app.handle("x").get()  # type: ignore[attr-defined]

    def test_python_adds_no_second_hint(self, app: Mainspring, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(AttributeError) as caught:
            app.task(send).enqueu  # type: ignore[attr-defined]  # noqa: B018
        sys.__excepthook__(caught.type, caught.value, None)
        assert capsys.readouterr().err.lower().count("did you mean") == 1

    def test_private_names_get_no_hint_and_objects_can_be_copied(self, app: Mainspring) -> None:
        handle = app.handle("x")
        assert copy.copy(handle).id == "x"
        with pytest.raises(AttributeError, match=r"has no attribute '_enqueue'$"):
            app.task(send)._enqueue  # type: ignore[attr-defined]  # noqa: B018

    def test_the_error_inside_a_property_is_told_as_it_is(self) -> None:
        class Sick(Mainspring):
            @property
            def timezone(self) -> Any:
                raise AttributeError("the zone is gone")

        with pytest.raises(AttributeError, match="the zone is gone"):
            Sick("memory://").timezone  # noqa: B018

    def test_no_habit_hides_a_name_of_ours(self) -> None:
        for cls, table in (
            (Task, habits.TASK_HABITS), (RunHandle, habits.HANDLE_HABITS), (Mainspring, habits.APP_HABITS)
        ):  # fmt: skip
            assert not [name for name in table if hasattr(cls, name)]
        assert not habits.OPTION_HABITS.keys() & OPTIONS


class TestArguments:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("max_retries", "here it is retries="),
            ("countdown", "here it is delay="),
            ("bind", r"here it is current_run\(\)"),
            ("acks_late", "here it is nothing"),
            ("timout", "did you mean 'timeout'"),
        ],
    )
    def test_options_of_a_task(self, app: Mainspring, name: str, says: str) -> None:
        with pytest.raises(TypeError, match=f"there is no option '{name}'; {says}"):
            app.task(**given(name))

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("countdown", r"options go before the call, .*: here that is delay="),
            ("delay", r"the option delay= goes before the call: task\.options\(delay=\.\.\.\)\.enqueue"),
            ("timse", "did you mean 'times'"),
        ],
    )
    def test_options_given_to_enqueue(self, app: Mainspring, name: str, says: str) -> None:
        with pytest.raises(TypeError, match=rf"send\(.*\) takes no argument '{name}'; .*{says}"):
            app.task(send).enqueue("a", **given(name))

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("broker", "the URL of the store"),
            ("secretkey", "did you mean 'secret_key'"),
            ("backend", "the store also keeps the results"),
        ],
    )
    def test_arguments_of_an_app(self, name: str, says: str) -> None:
        with pytest.raises(TypeError, match=rf"Mainspring\.__init__\(\) takes no argument '{name}'; .*{says}"):
            Mainspring("memory://", **given(name))

    def test_arguments_of_start_and_run(self, app: Mainspring) -> None:
        with pytest.raises(TypeError, match=r"start\(\) takes no argument 'worker'; here it is work=True"):
            app.start(worker=True)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"takes no argument 'thread'; did you mean 'threads'"):
            app.run(thread=2)
        assert not app.running

    def test_one_queue_is_no_list_of_letters(self, app: Mainspring) -> None:
        with pytest.raises(TypeError, match=r"queues must be a list of names.* not 'mail'; did you mean \['mail'\]"):
            app.start(work=True, queues="mail")

    def test_one_text_is_no_list_of_arguments(self, app: Mainspring) -> None:
        with pytest.raises(TypeError, match=r"args must be a list or tuple .* not '0 9 \* \* \*'"):
            app.add_job(send, "cron", "0 9 * * *")

    @pytest.mark.parametrize("url", ["jobs.db", "", "redis:localhost"])
    def test_what_is_no_url_is_refused_where_it_is_written(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"is not a store's URL; write it as sqlite:///jobs\.db"):
            Mainspring(url)

    def test_what_is_no_store_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"a store is named by its URL, .* not 5"):
            Mainspring(5)  # type: ignore[arg-type]

    def test_an_unknown_scheme_is_told_the_known_ones(self) -> None:
        with pytest.raises(ValueError, match=r"no store for kafka://; there are .*redis://"):
            Mainspring("kafka://x").store  # noqa: B018

    def test_a_name_without_its_module_finds_the_task(self, app: Mainspring) -> None:
        app.task(send)
        with pytest.raises(LookupError, match=r"no task is called 'send'; did you mean '[a-z_.]+:send'\?"):
            app.enqueue("send", "a")
        with pytest.raises(LookupError) as caught:
            app.enqueue("nothing_like_it")
        assert "mainspring:join" not in str(caught.value)

    def test_a_back_off_that_is_no_name_of_a_function(self, app: Mainspring) -> None:
        with pytest.raises(ValueError, match=r"backoff is a Backoff\(\.\.\.\).* not 'exponential'"):
            app.task(retries=3, backoff="exponential")

    def test_a_long_default_is_not_shown(self, app: Mainspring) -> None:
        def report(to: str, secrets: Any = {"password": "x" * 50}) -> str:  # noqa: B006
            return str(to)

        with pytest.raises(TypeError, match=r"report\(to: .*, secrets: .* = \.\.\.\) also needs 'to'$"):
            app.task(report).enqueue()  # type: ignore[call-arg]


class TestPatterns:
    @pytest.mark.parametrize("pattern", ["{user}", "a-{user.id}", "{user[id]}"])
    def test_a_limit_key_names_arguments_of_the_function(self, app: Mainspring, pattern: str) -> None:
        with pytest.raises(
            ValueError, match=r"limit_key .* names 'user', which is not an argument .* did you mean 'users'"
        ):

            @app.task(limit=1, limit_key=pattern)
            def pay(users: list[int]) -> list[int]:
                return users

    def test_so_does_a_unique_key(self, app: Mainspring) -> None:
        with pytest.raises(
            ValueError, match=r"unique .* names 'user', which is not an argument of the task; it takes none"
        ):

            @app.task(unique="{user}")
            def pay() -> None: ...

    def test_so_do_the_options_of_a_call(self, app: Mainspring) -> None:
        with pytest.raises(ValueError, match=r"names 'too', .*did you mean 'to'"):
            app.task(send).options(unique="{too}")
        with pytest.raises(ValueError, match="is not a pattern"):
            app.task(send).options(limit=1, limit_key="{to")

    def test_the_right_ones_are_kept(self, app: Mainspring) -> None:
        assert app.task(limit=1, limit_key="{to.name}-{times}", unique="{{{to}}}")(send).name

    def test_a_plain_unique_key_is_no_pattern(self, app: Mainspring) -> None:
        assert app.task(send).options(unique="user-1").defaults.unique == "user-1"
