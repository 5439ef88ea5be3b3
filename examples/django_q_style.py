"""django-q's verbs without Django: a call, a group, a chain, an iteration, a schedule."""

import logging
from datetime import datetime

from mainspring import Mainspring
from mainspring.tasks import Chain, Schedule, async_iter, async_task, fetch, result, result_group, schedule, set_app

app = Mainspring("memory://", timezone="Europe/Berlin")
set_app(app)
logging.disable()  # what fails is logged


def price(item: str, pieces: int = 1) -> int:
    return len(item) * pieces


app.start(work=True)
task_id = async_task("math.copysign", 2, -2, task_name="sign")
print("a call:", result(task_id, wait=5000))
for item in ("tea", "bread"):
    async_task(price, item, pieces=2, group="prices")
print("a group:", sorted(result_group("prices", wait=5000, count=2)))

chain = Chain([(price, ("tea",)), ("math.floor", (7.5,))])
chain.run()
print("a chain:", chain.result(wait=5000))

print("an iteration:", result(async_iter(price, ["tea", ("bread", 3)]), wait=5000))

task = fetch(async_task("math.sqrt", -1, sync=True))
assert task is not None
print("a failure:", task.success, task.result.partition(" : ")[0])

job = schedule(price, "tea", name="monthly", schedule_type=Schedule.MONTHLY, next_run=datetime(2027, 1, 31, 9))
print("a schedule:", *(f"{day:%d %b}" for day in app.preview(job, 3)))

app.stop()
