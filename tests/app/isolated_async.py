"""A task that runs in a process of its own, inside coroutines."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from mainspring import Mainspring

app = Mainspring("memory://")
PARENT = os.environ.setdefault("MAINSPRING_TEST_PARENT", str(os.getpid()))


@app.middleware
async def around(run: Any, call_next: Any) -> Any:
    await asyncio.sleep(0)
    return f"awaited {await call_next()}"


@app.task(isolation="process")
def pid() -> str:
    return "a child" if str(os.getpid()) != PARENT else "no child"
