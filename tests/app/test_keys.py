"""Where an app's keys come from, and what follows from having one."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.codec import Keyring
from mainspring.codec.key_sources import find_keyring
from mainspring.core.run import Status
from mainspring.errors import ConfigurationError
from tests.app.kit import KEY, LIMIT, MakeApp

OLD = "the key of the year before this"


def same(value: str) -> str:
    return value


def ids(app: Mainspring) -> tuple[bytes, ...]:
    keyring = app.codec._keyring
    assert keyring is not None
    return keyring.ids


def test_a_key_is_given_as_text_or_as_a_list_newest_first(make_app: MakeApp) -> None:
    assert ids(make_app(secret_key=KEY)) == (Keyring.key_id(KEY),)
    assert ids(make_app(secret_key=KEY.encode())) == (Keyring.key_id(KEY),)
    assert ids(make_app(secret_key=[KEY, OLD])) == (Keyring.key_id(KEY), Keyring.key_id(OLD))


def test_without_a_given_key_the_environment_has_it(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", f"{KEY}, {OLD}")
    assert ids(make_app("redis://localhost:1/0")) == (Keyring.key_id(KEY), Keyring.key_id(OLD))
    assert ids(make_app("redis://localhost:1/0", secret_key=OLD)) == (Keyring.key_id(OLD),)
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", " , ")
    with pytest.raises(ConfigurationError, match="set but empty"):
        _ = make_app("redis://localhost:1/0").codec


def test_a_shared_store_without_a_key_signs_nothing(make_app: MakeApp) -> None:
    assert not make_app("redis://localhost:1/0").codec.signed
    assert not make_app("postgresql://localhost:1/x").codec.signed


def test_sqlite_makes_a_key_beside_the_database_that_only_its_owner_can_read(make_app: MakeApp, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    first, second = make_app(url), make_app(url)
    assert ids(first) == ids(second)
    path = tmp_path / "jobs.db.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text().strip()) >= 32
    assert [each.name for each in path.parent.iterdir()] == ["jobs.db.key"]


def test_a_mistyped_folder_is_named_and_not_made(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/dtaa/jobs.db")
    with pytest.raises(ConfigurationError, match=r"no folder '.*dtaa'; make it, or correct the URL"):
        app.enqueue(same, "lost")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return look(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigurationError) as caught:
        find_keyring(None, f"sqlite:///{tmp_path}/jobs.db")
    said = str(caught.value)
    assert said.startswith(f"a key for 'jobs.db' cannot be made in the folder {str(tmp_path)!r} (Permission denied)")


def test_a_key_file_that_others_can_read_is_refused(make_app: MakeApp, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    _ = make_app(url).codec
    (tmp_path / "jobs.db.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        _ = make_app(url).codec


def test_a_key_file_that_somebody_else_planted_is_refused(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db.key"
    path.write_text("a key that a stranger knows\n")
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 54321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigurationError, match=r"belongs to the user .* chown"):
        _ = make_app(f"sqlite:///{tmp_path}/jobs.db").codec


def test_a_key_file_that_is_a_link_is_refused(make_app: MakeApp, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("a key that a stranger knows\n")
    known.chmod(0o600)
    (tmp_path / "jobs.db.key").symlink_to(known)
    with pytest.raises(ConfigurationError, match="symbolic link"):
        _ = make_app(f"sqlite:///{tmp_path}/jobs.db").codec


def test_a_key_file_that_is_a_link_to_nothing_is_refused_and_nothing_is_made(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "jobs.db.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="symbolic link"):
        _ = make_app(f"sqlite:///{tmp_path}/jobs.db").codec
    assert os.listdir(tmp_path) == ["jobs.db.key"]


def test_a_named_pipe_or_a_folder_in_place_of_the_key_file_is_refused(make_app: MakeApp, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "jobs.db.key", 0o600)
    (tmp_path / "other.db.key").mkdir(0o700)
    for name in ("jobs", "other"):
        with pytest.raises(ConfigurationError, match="is not a file"):
            _ = make_app(f"sqlite:///{tmp_path}/{name}.db").codec


def test_an_empty_key_file_is_named(make_app: MakeApp, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db.key"
    path.touch(0o600)
    with pytest.raises(ConfigurationError, match=r"jobs\.db\.key"):
        _ = make_app(f"sqlite:///{tmp_path}/jobs.db").codec


def test_many_who_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with ThreadPoolExecutor(16) as threads:
        rings = list(threads.map(lambda _: find_keyring(None, url), range(64)))
    assert len({ring.ids for ring in rings if ring is not None}) == 1
    assert os.listdir(tmp_path) == ["jobs.db.key"]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite+pysqlite:///:memory:"])
def test_a_database_in_memory_has_no_key_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_keyring(None, url) is None
    assert os.listdir(tmp_path) == []


def test_what_was_enqueued_under_the_old_key_is_executed_after_a_rotation(make_app: MakeApp, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    old = make_app(url, secret_key=OLD)
    before = old.task(same).enqueue("before")
    old.add_job(same, "interval", hours=1, args=["job"], id="job")
    old.close()
    new = make_app(url, secret_key=[KEY, OLD])
    new.task(same)
    new.start(work=True)
    after = new.enqueue(same, "after")
    assert [new.handle(handle.id).result(timeout=LIMIT) for handle in (before, after)] == ["before", "after"]
    assert new.run_now("job").result(timeout=LIMIT) == "job"
    frames = {handle.id: new.store.get_runs([handle.id])[0].call.frame for handle in (before, after)}  # type: ignore[union-attr]
    assert Keyring.key_id(KEY) in frames[after.id]  # type: ignore[operator]
    assert Keyring.key_id(OLD) in frames[before.id]  # type: ignore[operator]


def test_what_is_signed_with_an_unknown_key_is_set_aside_and_comes_back_with_the_key(
    make_app: MakeApp, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    old = make_app(url, secret_key=OLD)
    run = old.task(same).enqueue("precious")
    old.add_job(same, "interval", hours=1, args=["job"], id="job")
    old.close()

    new = make_app(url, secret_key=KEY)
    new.task(same)
    new.start(work=True)
    view = new.wait([run.id], LIMIT)[0]
    assert (view.status, "unknown_key" in str(view.reason)) == (Status.BROKEN, True)
    assert new.jobs() == []
    assert sorted(each.id for each in new.broken()) == sorted([run.id, "job"])
    new.close()

    both = make_app(url, secret_key=[KEY, OLD])
    both.task(same)
    both.start(work=True)
    assert [job.id for job in both.jobs()] == ["job"]
    assert both.restore(run.id) is True
    assert both.handle(run.id).result(timeout=LIMIT) == "precious"
    assert both.restore("nobody") is False
    assert both.broken() == []
