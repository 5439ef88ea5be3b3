"""Placeholders in calls are signed with them, and refused anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from mainspring.codec import Codec, EncodeError, Keyring
from mainspring.core.waiting.placeholders import OUTCOME, Placeholder


@dataclass
class Page:
    body: Any


CODECS = [Codec(types=[Page]), Codec(Keyring(["a key of 32 bytes for the tests!"]), allow_pickle=True)]


@pytest.mark.parametrize("codec", CODECS)
def test_placeholders_come_back_as_they_were(codec: Codec) -> None:
    value = {"a": [Placeholder("run/1~2"), (Placeholder("ä", OUTCOME), 1)]}
    assert codec.loads(codec.dumps(value, "run:1", inputs=2), "run:1") == value


@pytest.mark.parametrize("codec", CODECS)
def test_a_placeholder_that_nobody_will_replace_is_refused(codec: Codec) -> None:
    with pytest.raises(EncodeError, match="stands for the result of a run"):
        codec.dumps([1, Placeholder("a")], "end:1")
    with pytest.raises(EncodeError, match="inside lists, tuples and dicts"):
        codec.dumps([Placeholder("b"), Page(Placeholder("a"))], "run:1", inputs=1)
