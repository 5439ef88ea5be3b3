"""`mainspring runs`: look at runs, act on them."""

from mainspring.cli.runs import acting, looking
from mainspring.cli.runs.group import runs

__all__ = ["acting", "looking", "runs"]
