"""What the pages leave to their reader, and what their programs print."""

from __future__ import annotations

from typing import Final

ELSEWHERE: Final = {
    "fastapi.md": "tests/contrib/test_guides.py runs it",
    "deploys.md": "tests/contrib/test_guides.py runs it",
    "flask.md": "tests/contrib/test_guides.py runs it",
    "integrations.md": "tests/contrib/test_guides.py runs it",
    "signatures.md": "tests/contrib/test_guides.py runs it",
    "testing.md": "tests/testing/test_kit.py runs it under pytest",
    "tracker.md": "tests/tracker/test_guide.py runs it on PostgreSQL",
}
"""Pages whose blocks another test runs."""

_APP = 'from mainspring import Mainspring\napp = Mainspring("sqlite:///jobs.db")\n'

SETTING: Final = {
    "limits.md": _APP,
    "workers.md": _APP + "import time\nstatsd = None\n",
    "moving.md": _APP,
    "stores/redis.md": _APP
    + """
from mainspring.schedulers.background import BackgroundScheduler
scheduler = BackgroundScheduler()
def report(): ...
@app.task
def send(to): ...
""",
    "stores/mongodb.md": "import pymongo\nmy_client = pymongo.MongoClient(connect=False)\n",
    "stores/etcd.md": _APP,
    "stores/zookeeper.md": _APP,
    "transactions.md": _APP
    + """
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
class Base(DeclarativeBase): ...
class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
engine = create_engine("sqlite:///jobs.db")
Base.metadata.create_all(engine)
order, another = Order(), Order()
@app.task
def send_receipt(order): ...
app.reconcile()  # as app.start() does: the tables are there
""",
    "explain.md": _APP
    + """
from datetime import timedelta
from mainspring.events import EVENT_JOB_HEALTH
@app.task(queue="mail", name="shop:send_mail")
def send_mail(to):
    raise TimeoutError("no answer")
send_mail.options(inline=False).enqueue("bob")
app.start(work=True)
app.wait(app.find(), timeout=30)
app.stop()
handle = send_mail.enqueue("ann")
app.add_job(send_mail, "cron", hour=3, args=["ann"], id="nightly_report")
""",
}
"""What has to be there before the first block of a page, because the page speaks of it as the reader's own."""

PRINTED: Final = {
    "flows.md": ["3\n", "2 of 2 went well\n", "1\n", "['list', 'RunFailed']\n", "succeeded\n"],
    "coming-from/apscheduler.md": ["flaky succeeded attempt 3 ['ConnectionError', 'ConnectionError']\n"],
    "coming-from/celery.md": ["13\n", "[0, 2, 4, 6]\n"],
    "notebooks.md": ["499500\n", "crunch succeeded 499500\n"],
    "queue.md": ["sent to ada@example.org\n", "already paid\n", "[0, 1, 4, 9, 16]\n", "-2.0\n", "log_in('ada', ***)"],
    "retries.md": ["failed 3 ['the bank hung up', 'the bank hung up', 'the bank hung up']\n"],
}
"""What the program of a page prints, as the page says."""
