"""FastAPI: enqueue from an async view, say how it goes, work inside the web process, mount the dashboard."""

from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient

from mainspring import Mainspring
from mainspring.errors import RunNotFound

jobs = Mainspring("memory://")
web = FastAPI(lifespan=jobs.aio.lifespan(work=True))  # leave out work=True where `mainspring worker` runs beside it
web.mount("/jobs", jobs.asgi())


@jobs.task
async def send_mail(to: str) -> str:
    return f"sent to {to}"


@web.post("/orders/{buyer}")
async def order(buyer: str) -> dict[str, str]:
    run = await jobs.aio.enqueue(send_mail, buyer)  # does not block the event loop
    return {"run": run.id}


@web.get("/orders/{run_id}")
async def look(run_id: str, wait: bool = False) -> dict[str, str]:
    try:
        run = await jobs.aio.get(run_id) if not wait else (await jobs.aio.wait([run_id], timeout=30))[0]
    except RunNotFound:
        raise HTTPException(404, "there is no such order") from None
    return {"status": run.status, "mail": run.result or "not yet"}


if __name__ == "__main__":
    with TestClient(web, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        run_id = client.post("/orders/ann").json()["run"]
        print("mail:", client.get(f"/orders/{run_id}?wait=1").json())
        print("unknown:", client.get("/orders/nothing").status_code)
        print("dashboard:", client.get("/jobs/runs").status_code)
