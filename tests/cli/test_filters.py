"""The filter language: what each term means, and what is said about a mistake."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.insight.acts import Act
from mainspring.core.instants import SECOND, to_us
from mainspring.core.run import Call, Error, Run, Status
from mainspring.core.showing.filters import KEYS, STATUSES, Filter, FilterError, is_term, parse_filter
from mainspring.core.showing.run_view import RunView

ZONE = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 3, 2, 15, 30, tzinfo=ZONE)
AT = to_us(NOW)


def send_mail(to: str, token: str = "") -> None:
    """Stand for a task with named parameters."""


def run(**given: Any) -> RunView:
    call = Call(
        given.pop("func", "shop.mail:send_mail"), given.pop("args", ()), given.pop("kwargs", {}), given.pop("name", "")
    )
    return RunView(Run(**{"id": "01f", "call": call, "created_at": AT - SECOND, "run_at": AT - SECOND, **given}), ZONE)


def matches(text: str, found: RunView) -> bool:
    return parse_filter(text, NOW).matches(found, send_mail)


def error(type: str, message: str) -> Error:
    return Error(type, message, f"Traceback ...\n{type}: {message}", AT, 1)


@pytest.mark.parametrize(
    ("text", "fitting", "other"),
    [
        ("status:failed", {"status": Status.FAILED}, {"status": Status.SUCCEEDED}),
        ("status:failed,missed", {"status": Status.MISSED}, {"status": Status.SUCCEEDED}),
        ("-status:failed", {"status": Status.MISSED}, {"status": Status.FAILED}),
        ("status:pending", {"failures": 1}, {"status": Status.RUNNING}),
        ("status:waiting", {}, {"run_at": AT + SECOND}),
        ("status:delayed", {"run_at": AT + SECOND}, {}),
        ("status:retrying", {"failures": 1, "run_at": AT + SECOND}, {"run_at": AT + SECOND}),
        ("queue:mail", {"queue": "mail"}, {"queue": "mails"}),
        ("queue:mail,web", {"queue": "web"}, {"queue": "mails"}),
        ("-queue:mail,web", {"queue": "mails"}, {"queue": "web"}),
        ("task:send*", {}, {"func": "shop.mail:resend"}),
        ("task:send_mail", {}, {"func": "shop.mail:send_mails"}),
        ("task:shop.mail:send_mail", {}, {"func": "shop.web:send_mail"}),
        ("task:shop.*", {}, {"func": "shops:send_mail"}),
        ('task:"send*"', {"func": "x:send*"}, {}),
        ("job:nightly", {"job_id": "nightly"}, {"job_id": None}),
        ("group:a", {"group": "a"}, {"group": "b"}),
        ("node:fsn*", {"node": "fsn1:7:ab"}, {"node": None}),
        ("id:01f*", {}, {"id": "02f"}),
        ("error:timeout", {"errors": (error("TimeoutError", "x"),)}, {"errors": ()}),
        ("error:refused", {"errors": (error("OSError", "Refused!"),)}, {"errors": (error("OSError", ""),)}),
        ('text:"not found"', {"reason": "It was Not Found"}, {"reason": "found"}),
        ("text:ann", {"args": ("ann",)}, {"args": ("bob",)}),
        ("text:warming", {"log": ("warming up",)}, {}),
        ("since:1h", {"created_at": AT - 3599 * SECOND}, {"created_at": AT - 3601 * SECOND}),
        ("until:1h", {"created_at": AT - 3601 * SECOND}, {"created_at": AT - 3599 * SECOND}),
        ("since:1h30m", {"created_at": AT - 5399 * SECOND}, {"created_at": AT - 5401 * SECOND}),
        ("since:15:00", {"created_at": AT - 1799 * SECOND}, {"created_at": AT - 1801 * SECOND}),
        ("since:16:00", {"created_at": AT - 23 * 3600 * SECOND}, {"created_at": AT - 24 * 3600 * SECOND}),
        ("since:2026-03-02", {"created_at": AT - 15 * 3600 * SECOND}, {"created_at": AT - 16 * 3600 * SECOND}),
        ("since:2026-03-02T14:00:00+00:00", {"created_at": AT}, {"status": Status.FAILED, "created_at": 1}),
        ("took:>30s", {"started_at": AT, "finished_at": AT + 31 * SECOND}, {"started_at": AT, "finished_at": AT}),
        ("took:<=1m", {"started_at": AT, "finished_at": AT + 60 * SECOND}, {}),
        ("took:>5s", {"status": Status.RUNNING, "started_at": AT - 6 * SECOND}, {"started_at": AT - 6 * SECOND}),
        ("wait:>5m", {"run_at": AT - 301 * SECOND}, {"run_at": AT - 299 * SECOND}),
        ("starts:>1", {"attempt": 2}, {"attempt": 1}),
        ("starts:1", {"attempt": 1}, {"attempt": 2}),
        ("priority:>=10", {"priority": 10}, {"priority": 9}),
        ("priority:-1", {"priority": -1}, {"priority": 1}),
        ("arg.to:ann", {"args": ("ann",)}, {"args": ("bob",)}),
        ("arg.to:an*", {"kwargs": {"to": "ann"}}, {"kwargs": {"to": "bob"}}),
        ("arg.0:42", {"args": (42,)}, {"args": (4,)}),
        ("arg.user.city:Bonn", {"kwargs": {"user": {"city": "Bonn"}}}, {"kwargs": {"user": "Bonn"}}),
        ("arg.ids:7", {"kwargs": {"ids": [6, 7]}}, {"kwargs": {"ids": [6]}}),
        ("status:pending -queue:web starts:0", {}, {"queue": "web"}),
    ],
)
def test_a_term_keeps_the_runs_it_describes_and_no_others(
    text: str, fitting: dict[str, Any], other: dict[str, Any]
) -> None:
    assert matches(text, run(**fitting))
    assert not matches(text, run(**other))


@pytest.mark.parametrize(
    "now",
    [datetime(2026, 3, 29, 3, 30, tzinfo=ZONE), datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZONE)],
    ids=["forward", "back"],
)
def test_an_hour_ago_is_an_hour_also_when_the_clock_was_changed(now: datetime) -> None:
    last_hour = parse_filter("since:1h", now)
    assert last_hour.matches(run(created_at=to_us(now) - 3599 * SECOND), send_mail)
    assert not last_hour.matches(run(created_at=to_us(now) - 3601 * SECOND), send_mail)


def test_an_empty_filter_matches_every_run() -> None:
    assert parse_filter("", NOW) == parse_filter([], NOW) == parse_filter([" "], NOW) == Filter()
    assert matches("", run())


def test_a_secret_argument_never_matches() -> None:
    sent = run(args=("ann", "hunter2"))
    assert matches("arg.to:ann", sent)
    assert not matches("arg.token:hunter2", sent)
    assert not matches("arg.1:hunter2", sent)
    assert not matches("text:hunter2", sent)


def test_two_terms_of_one_key_must_both_hold() -> None:
    assert matches("starts:>1 starts:<4", run(attempt=3))
    assert not matches("starts:>1 starts:<4", run(attempt=4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("staus:failed", "there is no filter 'staus'; did you mean 'status'"),
        ("xyzzy:1", "there is no filter 'xyzzy'; write it as in status:failed queue:mail since:1h"),
        ("failed", "'failed' is not a condition; write text:failed to search for it"),
        ("status:faild", "no status is called 'faild'; did you mean 'failed'?"),
        ("status:", "'status:' is not complete"),
        ("status:,", "'status:,' is not complete"),
        ("arg.:1", "'arg.:1' is not complete"),
        ("by:*ann", r"by:\*ann has a \* before its end"),
        ("task:*mail", r"task:\*mail has a \* before its end"),
        ("since:yesterday", "since:yesterday is not a time; write how long ago"),
        ("since:1y", "since:1y is not a time"),
        ("since:999999999d", "since:999999999d is not a time"),
        ("until:1h,2h", "until takes one time"),
        ("took:30s", "took:30s is not a length of time; write more or less than what: took:>30s"),
        ("wait:>soon", "wait:>soon is not a length of time"),
        ("starts:>many", "starts:>many is not a whole number"),
        ('text:"not', "a quote is not closed"),
    ],
)
def test_a_mistake_is_named_with_what_was_probably_meant(text: str, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse_filter(text, NOW)


def test_words_that_a_shell_has_split_are_read_as_one_text_is() -> None:
    found = run(reason="it was not found", queue="mail")
    assert parse_filter(["text:not found", "queue:mail"], NOW).matches(found)
    assert parse_filter(["queue:mail status:pending"], NOW).matches(found)
    assert not parse_filter(["queue:mail status:failed"], NOW).matches(found)


def test_a_filter_tells_a_store_what_it_can_look_for() -> None:
    wanted = parse_filter("status:failed,retrying,waiting queue:mail -job:x group:g* since:1h since:2h", NOW)
    assert wanted.statuses() == ("failed", "pending")
    assert [wanted.only(key) for key in ("queue", "job", "group")] == ["mail", None, None]
    assert wanted.since == NOW - timedelta(hours=1)
    assert parse_filter("queue:mail,web", NOW).only("queue") is None
    assert parse_filter("-status:failed -since:1h", NOW).statuses() is None
    assert parse_filter("-since:1h", NOW).since is None
    assert parse_filter("status:failed status:missed", NOW).statuses() == ()


def act(by: str, target: str, kind: str = "run") -> Act:
    return Act(id=target, at=AT, verb="cancel", kind=kind, target=target, by=by)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("by:ann", {"a", "b"}),
        ("by:ann,bob", {"a", "b", "c"}),
        ("by:ann by:bob", {"b"}),
        ("-by:ann", {"c", "d", "e", "q"}),
        ("by:an*", {"a", "b", "e"}),
        ('by:"an*"', set()),
        ("by:root", {"d"}),
        ("by:root@web", {"d"}),
        ("by:root@db", set()),
        ("by:ann -by:bob", {"a"}),
    ],
)
def test_a_person_is_known_by_the_runs_they_acted_on(text: str, found: set[str]) -> None:
    acts = [
        *(act("ann", "a"), act("ann", "a"), act("ann", "b"), act("bob", "b"), act("bob", "c")),
        *(act("root@web", "d"), act("anna", "e"), act("ann", "q", "queue")),
    ]
    wanted = parse_filter(text, NOW, lambda: acts)
    assert {name for name in "abcdeq" if wanted.matches(run(id=name))} == found
    assert (wanted.ids() is None) == text.startswith("-")
    assert not wanted.is_indexed()


def test_acts_are_read_once_and_only_for_a_filter_that_asks_for_people() -> None:
    read: list[int] = []

    def acts() -> list[Act]:
        read.append(1)
        return []

    parse_filter("queue:mail", NOW, acts)
    assert read == []
    parse_filter("by:ann,bob -by:eve", NOW, acts)
    assert read == [1]


def test_a_term_is_told_from_an_id() -> None:
    assert all(map(is_term, ["status:x", "-task:probe", "arg.user:1", *(f"{key}:1" for key in KEYS)]))
    assert not any(map(is_term, ["01f", "nightly@1:missed", "-n", "--json", "status"]))


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    with suppress(FilterError):
        parse_filter(text, NOW).matches(run())
    with suppress(FilterError):
        parse_filter([text], NOW).matches(run())


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*KEYS, "arg.x"]),
            st.sampled_from(["", "-"]),
            st.sampled_from(["1", ">1s", "a*", *STATUSES]),
        )
    )
)
def test_no_combination_of_terms_breaks_the_parser(terms: list[tuple[str, str, str]]) -> None:
    with suppress(FilterError):
        parse_filter(" ".join(f"{minus}{key}:{value}" for key, minus, value in terms), NOW).matches(run())
