"""Names that users import: they stay where they are, whatever moves inside."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import mainspring

PUBLIC = {
    "mainspring": "Cancel Mainspring Needs Retry RunHandle current_run",
    "mainspring.app": "Mainspring",
    "mainspring.cluster": "Cluster",
    "mainspring.contrib.flask": "FlaskMainspring",
    "mainspring.contrib.logging": "RunContext",
    "mainspring.contrib.opentelemetry": "instrument",
    "mainspring.contrib.prometheus": "metrics_text serve_metrics",
    "mainspring.contrib.sentry": "monitor_jobs report",
    "mainspring.dashboard": "DashboardApp Accounts",
    "mainspring.django.store": "DjangoStore",
    "mainspring.errors": "ConflictingIdError JobLookupError MainspringError",
    "mainspring.events": "EVENT_JOB_EXECUTED EVENT_JOB_ERROR EVENT_JOB_MISSED JobExecutionEvent SchedulerEvent",
    "mainspring.executors.asyncio": "AsyncIOExecutor",
    "mainspring.executors.base": "BaseExecutor",
    "mainspring.executors.debug": "DebugExecutor",
    "mainspring.executors.gevent": "GeventExecutor",
    "mainspring.executors.pool": "ThreadPoolExecutor ProcessPoolExecutor",
    "mainspring.executors.tornado": "TornadoExecutor",
    "mainspring.executors.twisted": "TwistedExecutor",
    "mainspring.job": "Job",
    "mainspring.jobstores.base": "BaseJobStore ConflictingIdError JobLookupError JobStore",
    "mainspring.jobstores.memory": "MemoryJobStore",
    "mainspring.jobstores.redis": "RedisJobStore",
    "mainspring.jobstores.sqlalchemy": "SQLAlchemyJobStore",
    "mainspring.schedulers.asyncio": "AsyncIOScheduler",
    "mainspring.schedulers.background": "BackgroundScheduler",
    "mainspring.schedulers.base": "BaseScheduler",
    "mainspring.schedulers.blocking": "BlockingScheduler",
    "mainspring.schedulers.gevent": "GeventScheduler",
    "mainspring.schedulers.qt": "QtScheduler",
    "mainspring.schedulers.tornado": "TornadoScheduler",
    "mainspring.schedulers.twisted": "TwistedScheduler",
    "mainspring.tasks": "async_task result fetch schedule Chain Iter AsyncTask",
    "mainspring.testing.conformance": "",
    "mainspring.tracker": "JobMixin Updates",
    "mainspring.triggers.calendarinterval": "CalendarIntervalTrigger",
    "mainspring.triggers.combining": "AndTrigger OrTrigger",
    "mainspring.triggers.cron": "CronTrigger",
    "mainspring.triggers.date": "DateTrigger",
    "mainspring.triggers.interval": "IntervalTrigger",
    "mainspring.util": "astimezone convert_to_datetime obj_to_ref ref_to_obj undefined",
}


@pytest.mark.parametrize("path", sorted(PUBLIC))
def test_a_public_path_stays(path: str) -> None:
    module = import_module(path)
    assert [name for name in PUBLIC[path].split() if not hasattr(module, name)] == []


def test_the_top_of_the_package_and_each_folder_can_be_overlooked() -> None:
    package = Path(mainspring.__file__).parent
    assert len(list(package.glob("*.py"))) <= 12
    crowded = {
        str(folder.relative_to(package)): number
        for folder in package.rglob("*")
        if folder.is_dir() and (number := len(list(folder.glob("*.py")))) > 18
    }
    assert not crowded


def test_what_is_not_python_is_installed_too() -> None:
    package = Path(mainspring.__file__).parent
    assert (package / "py.typed").is_file()
    assert len(list((package / "jobstores" / "redis" / "lua").glob("*/*.lua"))) > 20
    assert (package / "dashboard" / "templates" / "base.html").is_file()
    assert (package / "dashboard" / "static" / "dashboard.css").is_file()
