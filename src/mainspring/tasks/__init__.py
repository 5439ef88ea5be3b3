"""django-q's verbs over an app: change `django_q.tasks` to `mainspring.tasks` in the imports.

Importing this module opens nothing. The verbs act on the app given to `set_app`, else on the app that
`MAINSPRING_APP` names (`module:attribute`), else on a `Mainspring()` made on first use.
`docs/coming-from/django-q.md` lists the differences.
"""

from __future__ import annotations

from mainspring.tasks.broker import Broker, get_broker, queue_size
from mainspring.tasks.builders import AsyncTask, Chain, Iter
from mainspring.tasks.current import get_app, set_app
from mainspring.tasks.enqueueing import async_chain, async_iter, async_task
from mainspring.tasks.fetching import (
    FetchedTask,
    count_group,
    count_group_cached,
    delete_cached,
    delete_group,
    delete_group_cached,
    fetch,
    fetch_cached,
    fetch_group,
    fetch_group_cached,
    result,
    result_cached,
    result_group,
    result_group_cached,
)
from mainspring.tasks.scheduling import Schedule, schedule

__all__ = [
    "AsyncTask",
    "Broker",
    "Chain",
    "FetchedTask",
    "Iter",
    "Schedule",
    "async_chain",
    "async_iter",
    "async_task",
    "count_group",
    "count_group_cached",
    "delete_cached",
    "delete_group",
    "delete_group_cached",
    "fetch",
    "fetch_cached",
    "fetch_group",
    "fetch_group_cached",
    "get_app",
    "get_broker",
    "queue_size",
    "result",
    "result_cached",
    "result_group",
    "result_group_cached",
    "schedule",
    "set_app",
]
