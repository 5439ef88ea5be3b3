"""A store that keeps jobs as JSON files in a folder, and their runs in SQLite.

Run it with `python examples/json_folder_store.py`. The class below is all that a back end of jobs needs.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mainspring.jobstores.split import JobRecord, JobRecords, RecordsJobStore


class JsonFolder(JobRecords):
    """One file for each record; a lock on the folder makes each write one step for all processes of the machine."""

    server = "a folder of JSON files"
    max_bytes = 1024 * 1024
    max_jobs = 1000  # `due` reads them all
    refused = (OSError,)

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @property
    def place(self) -> str:
        return f"the folder {self.folder}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        with self.asked("read"):
            return [self._read(self._file(key)) for key in keys]

    def all(self) -> list[JobRecord]:
        with self.asked("read"):
            return [record for file in self.folder.glob("*.json") if (record := self._read(file)) is not None]

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        timed = sorted((record.wake, record.key, record) for record in self.all() if record.wake is not None)
        page = [record for wake, _, record in timed if wake <= until][:limit]
        return page, timed[len(page)][0] if len(timed) > len(page) else None

    # -- writing -----------------------------------------------------------------------------------------------

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        return [self._swap(record.key, seen, record) for record, seen in writes]

    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        return [self._swap(record.key, record, None) for record in seen]

    def _swap(self, key: str, seen: JobRecord | None, record: JobRecord | None) -> bool:
        """Compare and set: the one thing that has to be atomic."""
        file = self._file(key)
        with self.asked("write"), self._lock():
            stored = self._read(file)
            if (stored and stored.version) != (seen and seen.version):
                return False
            if record is None:
                file.unlink()
            else:
                self._write(file, record)
            return True

    # -- files -------------------------------------------------------------------------------------------------

    def _file(self, key: str) -> Path:
        # A name has at most 255 bytes, and an id may be longer.
        return self.folder / f"{quote(key, safe='')[:100]}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self, file: Path) -> JobRecord | None:
        try:
            found = json.loads(file.read_bytes())
        except FileNotFoundError:
            return None
        return JobRecord(found["key"], found["version"], found["wake"], base64.b64decode(found["data"]))

    def _write(self, file: Path, record: JobRecord) -> None:
        """Replace a file as a whole: after a crash it is the old one or the new one."""
        data = base64.b64encode(record.data).decode()
        found = {"key": record.key, "version": record.version, "wake": record.wake, "data": data}
        new = file.with_suffix(".new")
        with new.open("w") as out:
            json.dump(found, out)
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)


class JsonFolderStore(RecordsJobStore):
    """What a user opens: `JsonFolderStore("jobs", runs="sqlite:///runs.db")`, or a URL if it is a plug-in."""

    def __init__(self, folder: str = "jobs", *, url: str | None = None, **options: Any) -> None:
        super().__init__(JsonFolder(url.partition("://")[2] if url else folder), **options)


def greet(name: str) -> None:
    print(f"hello, {name}")


def main() -> None:
    from mainspring.events import EVENT_JOB_EXECUTED
    from mainspring.schedulers.background import BackgroundScheduler

    with tempfile.TemporaryDirectory() as folder:
        done = threading.Event()
        store = JsonFolderStore(f"{folder}/jobs", runs=f"sqlite:///{folder}/runs.db")
        scheduler = BackgroundScheduler(jobstores={"default": store})
        scheduler.add_listener(lambda event: done.set(), EVENT_JOB_EXECUTED)
        scheduler.start()
        scheduler.add_job(greet, args=["world"], id="greeting")
        scheduler.add_job(greet, "interval", hours=1, args=["hour"], id="hourly")
        done.wait(30)
        scheduler.shutdown()
        print(f"{len(list(Path(folder, 'jobs').glob('*.json')))} job is in the folder")


if __name__ == "__main__":
    main()
