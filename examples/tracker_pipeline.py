"""Files go through three steps, tracked in a table of your own; what fails is tried again, then left alone."""

import logging
from pathlib import Path

from sqlalchemy import create_engine, orm

from mainspring.tracker import JobMixin, Tracker


class File(orm.declarative_base(), JobMixin):  # type: ignore[misc]
    __tablename__ = "files"


class Read(Tracker[File]):
    pending, in_progress, failed, ignored, succeeded = 10, 11, 12, 13, 20


class Count(Tracker[File]):  # a file that was read waits to be counted: both are 20
    pending, in_progress, failed, ignored, succeeded = 20, 21, 22, 23, 30


class Publish(Tracker[File]):
    pending, in_progress, failed, ignored, succeeded = 30, 31, 32, 33, 40


logging.disable()  # skipped errors are told to the log
engine = create_engine("sqlite://")
File.metadata.create_all(engine)
for name in (__file__, "missing.txt"):
    File.create_and_save(engine, name, Read.pending)
reading = (Read, lambda file: Path(file.id).read_text())
counting = (Count, lambda file: len(file.data.split()))
publishing = (Publish, lambda file: f"{Path(file.id).name} has {file.data} words")
for step, act in (reading, counting, publishing):
    while work := step.start_next(engine, skip_error=True):  # the oldest that may start, in any number of processes
        with work as (file, updates):
            updates.set("data", act(file))
ended = File.query_by_status(engine, [13, 40], older_task_first=False)  # what was updated last comes first
print(*(f"{job.status}: {job.data or job.errors['error']}" for job in ended), sep="\n")
