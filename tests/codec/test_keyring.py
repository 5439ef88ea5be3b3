"""Keys: which are accepted, how they are named, and how they are changed without losing anything."""

from __future__ import annotations

import pickle

import pytest

from mainspring.codec import Codec, FrameError, Keyring, Reason
from mainspring.errors import ConfigurationError
from tests.codec.shapes import JOB, KEY, OTHER_KEY

OLD, NEW = KEY, OTHER_KEY


def reason(codec: Codec, frame: bytes, context: str = JOB) -> Reason:
    with pytest.raises(FrameError) as caught:
        codec.loads(frame, context)
    return caught.value.reason


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([], "needs a key"),
        ([""], r"keys\[0\] is empty"),
        ([b""], r"keys\[0\] is empty"),
        ([KEY, "short"], r"keys\[1\] has 5 bytes, but a key needs at least 16"),
        (["\N{SNOWMAN}" * 5], "has 15 bytes"),
        ([KEY, OTHER_KEY, KEY], r"keys\[2\] is the same as keys\[0\]"),
        ([KEY, KEY.encode()], r"keys\[1\] is the same as keys\[0\]"),
        ([KEY + "\n"], "white space"),
        (KEY, r"write \[key\]"),
        (KEY.encode(), r"write \[key\]"),
        ([12345678901234567890], "text or bytes, not int"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_keyring_that_cannot_be_meant_is_refused(keys: list[str | bytes], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Keyring(keys)


def test_keys_that_share_an_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyring, "key_id", staticmethod(lambda key: b"same"))
    with pytest.raises(ConfigurationError, match=r"keys\[1\] has the same key id"):
        Keyring([OLD, NEW])


def test_an_error_about_a_key_does_not_show_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Keyring(["hush hush"])
    assert "hush" not in str(caught.value)


def test_a_key_has_an_id_of_four_bytes_that_never_changes() -> None:
    # These bytes are in every stored frame: if they change, nothing stored before can be read.
    assert Keyring.key_id(KEY) == Keyring.key_id(KEY.encode()) == bytes.fromhex("259dc324")
    assert Keyring.key_id(OTHER_KEY) != Keyring.key_id(KEY)


def test_a_keyring_shows_ids_and_no_keys() -> None:
    keyring = Keyring([NEW, OLD])
    assert repr(keyring) == f"<Keyring of {Keyring.key_id(NEW).hex()}, {Keyring.key_id(OLD).hex()}>"
    assert keyring.ids == (Keyring.key_id(NEW), Keyring.key_id(OLD))


def test_a_keyring_cannot_be_changed() -> None:
    keyring = Keyring([OLD])
    with pytest.raises(AttributeError, match="immutable"):
        keyring.signing_id = b"x" * 4
    with pytest.raises(AttributeError, match="immutable"):
        del keyring.signing_id


def test_a_codec_can_be_sent_to_another_process() -> None:
    codec = Codec(Keyring([NEW, OLD]), max_frame=5000)
    copy: Codec = pickle.loads(pickle.dumps(codec))
    assert copy.loads(codec.dumps([1], JOB), JOB) == [1]
    assert copy.max_frame == 5000


def test_the_newest_key_signs_and_all_keys_verify() -> None:
    before, after = Codec(Keyring([OLD])), Codec(Keyring([NEW, OLD]))
    old_frame = before.dumps("old", JOB)
    new_frame = after.dumps("new", JOB)
    assert Keyring.key_id(OLD) in old_frame
    assert Keyring.key_id(NEW) in new_frame
    assert Keyring.key_id(OLD) not in new_frame
    assert after.loads(old_frame, JOB) == "old"
    assert after.loads(new_frame, JOB) == "new"


def test_a_frame_of_a_retired_key_is_refused_until_the_key_is_back() -> None:
    frame = Codec(Keyring([OLD])).dumps("old", JOB)
    with pytest.raises(FrameError, match=f"signed with key {Keyring.key_id(OLD).hex()}.*add that key") as caught:
        Codec(Keyring([NEW])).loads(frame, JOB)
    assert caught.value.reason is Reason.UNKNOWN_KEY
    assert Codec(Keyring([NEW, OLD])).loads(frame, JOB) == "old"


def test_a_node_without_a_key_says_which_key_a_signed_frame_needs() -> None:
    frame = Codec(Keyring([OLD])).dumps("old", JOB)
    with pytest.raises(FrameError, match=f"signed with key {Keyring.key_id(OLD).hex()}, and no key is set") as caught:
        Codec().loads(frame, JOB)
    assert caught.value.reason is Reason.UNKNOWN_KEY


def test_a_node_with_a_key_refuses_unsigned_frames() -> None:
    assert reason(Codec(Keyring([OLD])), Codec().dumps("x", JOB)) is Reason.UNSIGNED


def test_another_key_under_a_known_id_does_not_verify() -> None:
    frame = Codec(Keyring([OLD])).dumps("x", JOB)
    forged = frame.replace(Keyring.key_id(OLD), Keyring.key_id(NEW))
    assert reason(Codec(Keyring([NEW, OLD])), forged) is Reason.BAD_SIGNATURE


def test_a_codec_tells_whether_it_signs() -> None:
    assert Codec(Keyring([OLD])).signed
    assert not Codec().signed


def test_allowing_pickle_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="allow_pickle=True needs a key"):
        Codec(allow_pickle=True)


@pytest.mark.parametrize("limit", ["max_frame", "max_unpacked", "max_ratio"])
def test_a_limit_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{limit} is 0"):
        Codec(**{limit: 0})  # type: ignore[arg-type]
