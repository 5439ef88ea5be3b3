"""`Job`, under the module name that APScheduler's users import."""

from mainspring.core.job import Job

__all__ = ["Job"]
