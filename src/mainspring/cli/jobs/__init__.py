"""`mainspring jobs`: look at jobs, act on them, add and edit them."""

from mainspring.cli.jobs import acting, comparing, editing, looking
from mainspring.cli.jobs.group import jobs

__all__ = ["acting", "comparing", "editing", "jobs", "looking"]
