"""The pages: one module each, with a `PAGE`. The docstring of `mainspring.dashboard` says how to write one."""

from __future__ import annotations

from typing import Final

from mainspring.dashboard.page import Page
from mainspring.dashboard.pages import more, overview, search
from mainspring.dashboard.pages.fleet import api, broken, nodes, system
from mainspring.dashboard.pages.schedules import form, job, jobs, timeline
from mainspring.dashboard.pages.work import bulk, errors, flows, queues, run, run_form, runs, tasks

__all__ = ["PAGES"]

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    jobs.PAGE,
    job.PAGE,
    form.PAGE,
    timeline.PAGE,
    runs.PAGE,
    run_form.PAGE,
    run.PAGE,
    bulk.PAGE,
    flows.PAGE,
    flows.FLOW_PAGE,
    queues.PAGE,
    queues.QUEUE_PAGE,
    errors.PAGE,
    errors.GROUP_PAGE,
    tasks.PAGE,
    tasks.TASK_PAGE,
    nodes.PAGE,
    nodes.NODE_PAGE,
    broken.PAGE,
    system.PAGE,
    system.AUDIT_PAGE,
    api.PAGE,
    more.PAGE,
    search.PAGE,
)
