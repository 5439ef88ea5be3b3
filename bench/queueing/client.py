"""The enqueuing side of one library: `python -m bench.queueing.client MODULE`, told what to do by lines of JSON."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import time
from typing import Any

from bench.queueing.notes import Stamps

PATIENCE = 30.0


class Client:
    """What may be asked; each verb answers with something that JSON can hold."""

    def __init__(self, module: str) -> None:
        self._side: Any = importlib.import_module(module)

    async def _call(self, name: str, *arguments: Any) -> Any:
        found = getattr(self._side, name)(*arguments)
        return await found if inspect.isawaitable(found) else found

    async def prepare(self) -> bool:
        """Make what the library needs; tell whether it needed anything."""
        needed = hasattr(self._side, "prepare")
        if needed:
            await self._call("prepare")
        return needed

    async def can_bulk(self) -> bool:
        """Tell whether the library can enqueue in bulk."""
        return hasattr(self._side, "many")

    async def single(self, seconds: float) -> dict[str, float]:
        """Enqueue one by one for so many seconds."""
        await self._call("one")  # connects
        one, wait, count = self._side.one, inspect.iscoroutinefunction(self._side.one), 0
        wall, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() - wall < seconds:
            if wait:
                await one()
            else:
                one()
            count += 1
        return {"count": count, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}

    async def bulk(self, count: int) -> dict[str, float]:
        """Enqueue in bulk."""
        await self._call("many", 10)
        wall, cpu = time.perf_counter(), time.process_time()
        await self._call("many", count)
        return {"count": count, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}

    async def fill(self, count: int) -> int:
        """Enqueue, by whatever is quickest."""
        if hasattr(self._side, "many"):
            await self._call("many", count)
        else:
            for _ in range(count):
                await self._call("one")
        return count

    async def done(self, count: int) -> int:
        """Return how many of so many calls are over, and known to be."""
        found: int = await self._call("done", count)
        return found

    async def latency(self, warm: int, count: int, gap: float) -> list[float]:
        """Return the seconds from each enqueue to its start, the first ones left out."""
        stamps, sent = Stamps(), []
        for number in range(warm + count):
            sent.append(time.monotonic())
            await self._call("one", number)
            if number < warm:
                await self._started(stamps, number)
            await asyncio.sleep(max(0.0, sent[-1] + gap - time.monotonic()))
        for number in range(warm + count):
            await self._started(stamps, number)
        return [stamps[number] - sent[number] for number in range(warm, warm + count)]

    async def _started(self, stamps: Stamps, number: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not stamps[number]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"call {number} has not started within {PATIENCE:g} s")
            await asyncio.sleep(0.005)


async def serve(client: Client) -> None:
    """Do what is asked for until there is no more."""
    for line in sys.stdin:
        verb, options = json.loads(line)
        answer = await getattr(client, verb)(**options)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(Client(sys.argv[1])))
