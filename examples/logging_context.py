"""Logging: every line that a task writes names its run, also in libraries that know nothing of mainspring."""

import logging
import sys

from mainspring import Mainspring
from mainspring.contrib.logging import RunContext

handler = logging.StreamHandler(sys.stdout)
handler.addFilter(RunContext())
handler.setFormatter(logging.Formatter("%(levelname)s [%(task)s, attempt %(attempt)s] %(name)s: %(message)s"))
logging.getLogger("shop").addHandler(handler)
logging.getLogger("shop").setLevel("INFO")

log = logging.getLogger("shop.mail")
app = Mainspring("memory://", log_runs=False)


@app.task(name="send_mail")
def send_mail(to: str) -> None:
    log.info("to %s", to)


with app:
    app.start(work=True)
    log.info("web request")
    handle = send_mail.enqueue("ann")
    handle.result(timeout=10)
    print("kept with the run:", handle.fetch().log)
