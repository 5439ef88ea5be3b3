"""A job, under the name by which APScheduler's users import it."""

from mainspring.core.job import Job

__all__ = ["Job"]
