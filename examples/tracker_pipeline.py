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
File.metadata.create_all(engine := create_engine("sqlite://"))
File.create_and_save(engine, __file__, Read.pending)
File.create_and_save(engine, "missing.txt", Read.pending)
reading = (Read, lambda file: Path(file.id).read_text())
counting = (Count, lambda file: len(file.data.split()))
publishing = (Publish, lambda file: f"{Path(file.id).name} has {file.data} words")
for step, act in (reading, counting, publishing):
    while work := step.start_next(engine, skip_error=True):  # the oldest that may start, in any number of processes
        with work as (file, updates):
            updates.set("data", act(file))
for job in File.query_by_status(engine, [40]) + File.query_by_status(engine, [13]):
    print(f"{job.status}: {job.data or job.errors['error']}")
