"""Failed runs are grouped by the type of their error and the place in the user's code."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest

import mainspring
from mainspring.core.run import Call, Error, Run, Status
from mainspring.core.showing.failures import folded, group_errors, place_of
from mainspring.core.showing.run_view import RunView


def traceback(*frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{path}", line {line}, in {function}\n    code()\n' for path, line, function in frames]
    return "Traceback (most recent call last):\n" + "".join(lines) + "ValueError: x\n"


def failed(number: int, type: str, message: str, trace: str, task: str = "shop:send") -> RunView:
    errors = (Error("Earlier", "", "", 1, 1), Error(type, message, trace, number, 2))
    return RunView(Run(id=f"r{number}", call=Call(task), status=Status.FAILED, errors=errors), UTC)


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([("/srv/shop.py", 9, "send")], "shop.py:send"),
        ([("/srv/shop.py", 9, "send"), ("/v/lib/python3.11/site-packages/x/net.py", 3, "get")], "shop.py:send"),
        ([("/srv/shop.py", 9, "send"), ("/usr/lib/python3.11/socket.py", 3, "connect")], "shop.py:send"),
        ([("C:\\shop\\mail.py", 9, "Mail.send")], "mail.py:Mail.send"),
        ([("/usr/lib/python3.11/json/decoder.py", 3, "decode")], "decoder.py:decode"),
        ([], ""),
    ],
)
def test_the_place_of_an_error_is_the_innermost_frame_of_the_users_own(
    frames: list[tuple[str, int, str]], place: str
) -> None:
    assert place_of(traceback(*frames)) == place


def test_runs_with_the_same_error_at_the_same_place_make_one_group() -> None:
    here, edited = traceback(("/srv/shop.py", 9, "send")), traceback(("/srv/shop.py", 12, "send"))
    runs = [
        failed(9, "KeyError", "'a'", here),
        failed(8, "KeyError", "'b'", edited, "shop:other"),
        failed(7, "KeyError", "'c'", traceback(("/srv/shop.py", 9, "other"))),
        failed(6, "OSError", "", here),
        RunView(Run(id="lost", call=Call("shop:send"), status=Status.FAILED), UTC),
    ]
    first, *others = group_errors(runs)
    assert (first.type, first.place, first.count, first.run_ids) == ("KeyError", "shop.py:send", 2, ["r9", "r8"])
    assert (first.newest.message, first.oldest.message) == ("'a'", "'b'")
    assert first.tasks == {"shop:send": 1, "shop:other": 1}
    assert [(group.type, group.place, group.count) for group in others] == [
        ("KeyError", "shop.py:other", 1),
        ("OSError", "shop.py:send", 1),
    ]


def test_a_group_keeps_the_ids_of_its_newest_runs_only() -> None:
    [group] = group_errors(failed(number, "KeyError", "", "") for number in range(20, 0, -1))
    assert (group.count, group.run_ids) == (20, ["r20", "r19", "r18", "r17", "r16"])


def test_frames_of_libraries_are_folded_and_those_of_the_user_are_whole() -> None:
    library = ("/v/lib/python3.11/site-packages/requests/api.py", 3, "get")
    trace = traceback(
        ("/usr/lib/python3.11/threading.py", 1, "run"), ("/srv/shop.py", 9, "send"), library, library,
        ("/srv/hooks.py", 2, "hook"), ("/usr/lib/python3.11/json/decoder.py", 3, "decode"),
    )  # fmt: skip
    assert folded(trace).splitlines() == [
        "Traceback (most recent call last):",
        "  ... 1 frame in threading ...",
        '  File "/srv/shop.py", line 9, in send',
        "    code()",
        "  ... 2 frames in requests ...",
        '  File "/srv/hooks.py", line 2, in hook',
        "    code()",
        "  ... 1 frame in json ...",
        "ValueError: x",
    ]


def test_a_traceback_without_frames_of_the_user_stays_whole() -> None:
    trace = traceback(("/usr/lib/python3.11/json/decoder.py", 3, "decode"))
    assert folded(trace) == trace
    assert folded("ValueError: x") == "ValueError: x"


def test_our_own_frames_are_folded_wherever_the_package_lies() -> None:
    inside = str(Path(mainspring.__file__).parent / "executors" / "threads" / "slots.py")
    text = folded(traceback((inside, 9, "execute"), ("/srv/shop.py", 3, "send")))
    assert "1 frame in mainspring" in text
    assert "slots.py" not in text
    assert "shop.py" in text
