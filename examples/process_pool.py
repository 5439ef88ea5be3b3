"""Jobs in child processes: they use all cores, and one that is killed harms only its own run."""

import logging
import os
import signal
import threading

from mainspring import events
from mainspring.schedulers.background import BackgroundScheduler


def count_primes(below: int) -> int:
    return sum(all(number % d for d in range(2, int(number**0.5) + 1)) for number in range(2, below))


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    ended = threading.Semaphore(0)

    def hear(event: events.JobExecutionEvent) -> None:
        kind = type(event.exception).__name__ if event.exception else event.retval
        print(f"{event.job_id}: {kind}")
        ended.release()

    logging.getLogger("mainspring").addHandler(logging.NullHandler())
    with BackgroundScheduler(executors={"default": {"type": "processpool", "max_workers": 1}}) as scheduler:
        scheduler.add_listener(hear, events.EVENT_JOB_EXECUTED | events.EVENT_JOB_ERROR)
        for name, func, args in (("first", count_primes, [1000]), ("crash", crash, []), ("after", count_primes, [100])):
            scheduler.add_job(func, args=args, id=name)
            ended.acquire()


if __name__ == "__main__":
    main()
