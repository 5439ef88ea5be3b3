"""The API over HTTP: authentication, permissions, bodies, errors as JSON, streams."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mainspring.core.showing.searching import filter_for, matching
from mainspring.dashboard.api.badge import badge
from mainspring.dashboard.api.endpoints import ENDPOINTS, ROOT, Endpoint
from mainspring.dashboard.api.openapi import openapi
from mainspring.dashboard.api.plain import run_data
from mainspring.dashboard.api.request import ApiRequest
from mainspring.dashboard.page import BadParameter, NoSuchThing
from mainspring.dashboard.roles import Identity
from mainspring.dashboard.web.visitors import Visitors
from mainspring.errors import JobLookupError, MainspringError, RunNotFound

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Api"]

MOST_BODY_BYTES: Final = 1_000_000
MOST_EXPORTED: Final = 100_000
EXPORT_PAGE_RUNS: Final = 500
_COLUMNS: Final = (
    *("id", "kind", "task", "arguments", "queue", "job_id", "group", "priority", "attempt", "failures"),
    *("created_at", "started_at", "finished_at", "took_seconds", "waited_seconds", "node", "says"),
)

_CUT: Final = f"more than {MOST_EXPORTED} runs match: the rest is left out; narrow the filter"

log = logging.getLogger("mainspring.dashboard")


class Refusal(Exception):
    """A refused request, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """The handler of requests below /api/v1."""

    def __init__(self, app: Mainspring, visitors: Visitors, who: Callable[[Request], Identity | None]) -> None:
        self._app, self._visitors, self._who = app, visitors, who

    def routes(self) -> list[Route]:
        """Return the routes, the most specific ones first."""
        special: dict[str, Callable[..., Any]] = {
            "/runs.csv": partial(self._export, "text/csv; charset=utf-8", "runs.csv", _as_csv),
            "/runs.json": partial(self._export, "application/x-ndjson", "runs.json", _as_lines),
            "/jobs/{id}/badge.svg": self._badge,
        }
        ordered = sorted(ENDPOINTS, key=lambda each: (each.path.count("{"), -each.path.count("/"), each.path))
        routes = [Route(f"{ROOT}/openapi.json", _explained(self._document))]
        for endpoint in ordered:
            path = endpoint.path.replace("{id}", "{id:path}").replace("{name}", "{name:path}")
            answer = special.get(endpoint.path) or partial(self._answer, endpoint)
            routes.append(Route(f"{ROOT}{path}", _explained(answer), methods=[endpoint.method]))
        return [
            *routes,
            Route(f"{ROOT}/{{path:path}}", self._nowhere, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]

    # -- who, and what -----------------------------------------------------------------------------------------

    async def _visitor(self, request: Request, endpoint: Endpoint | None = None) -> Identity:
        """Return the visitor; a browser's session needs its token to change anything."""
        by_session = self._who(request)
        who = by_session or await asyncio.to_thread(self._visitors.who_by_password, request)
        if who is None:
            raise Refusal(401, "log in, or send a name and a password")
        if endpoint is not None and not who.role.covers(endpoint.role):
            raise Refusal(403, f"that needs the role {endpoint.role}; you may {who.role}")
        session = self._visitors.session(request)
        by_cookie = by_session is not None and session is not None and session.name
        token = request.headers.get("x-csrf-token", "")
        if request.method != "GET" and by_cookie and not self._visitors.is_token(request, token):
            raise Refusal(403, "send the token of the session as x-csrf-token, or a name and a password")
        return who

    async def _asked(self, request: Request) -> ApiRequest:
        query = parse_qs(request.url.query, keep_blank_values=True, max_num_fields=100)
        body = {} if request.method == "GET" else await _body(request)
        return await asyncio.to_thread(ApiRequest, self._app, request.path_params, query, body)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        who = await self._visitor(request, endpoint)
        asked = await self._asked(request)
        return _json(await asyncio.to_thread(self._carried_out, endpoint, asked, who))

    def _carried_out(self, endpoint: Endpoint, asked: ApiRequest, who: Identity) -> dict[str, Any]:
        assert endpoint.do is not None
        if endpoint.method == "GET":
            return endpoint.do(asked)
        why = str(asked.field("why", str, ""))[:500]
        with self._app.acting(who.name or None, why) if who.name or why else nullcontext():
            return endpoint.do(asked)

    async def _nowhere(self, request: Request) -> Response:
        known = f"there is no {request.method} {request.scope['path'][:200]}; {ROOT}/openapi.json lists what there is"
        return JSONResponse({"error": known}, 404)

    async def _document(self, request: Request) -> Response:
        await self._visitor(request)
        return _json(openapi())

    # -- what is not a JSON object --------------------------------------------------------------------------------

    async def _badge(self, request: Request) -> Response:
        await self._visitor(request)
        job_id = request.path_params["id"]
        health = await asyncio.to_thread(self._app.health, job_id)
        return Response(badge(job_id, str(health.state)), media_type="image/svg+xml")

    async def _export(
        self, media: str, name: str, write: Callable[[Iterator[dict[str, Any]]], Iterator[str]], request: Request
    ) -> Response:
        await self._visitor(request)
        asked = await self._asked(request)
        wanted = await asyncio.to_thread(filter_for, self._app.runs, asked.filter)
        found = matching(self._app.runs, wanted)
        rows = (run_data(self._app, run, asked.now) for run in islice(found, MOST_EXPORTED + 1))
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(_in_threads(write(rows)), media_type=media, headers=headers)


def _explained(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Turn the errors of an endpoint into answers."""

    async def explained(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            return _problem(error)

    return explained


async def _in_threads(texts: Iterator[str]) -> AsyncIterator[str]:
    """Read a blocking iterator in threads, several texts at a time."""
    while chunk := await asyncio.to_thread(lambda: "".join(islice(texts, EXPORT_PAGE_RUNS))):
        yield chunk


def _as_csv(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Write runs as CSV; put a quote before a text that a spreadsheet would read as a formula."""
    yield ",".join(_COLUMNS) + "\r\n"
    for number, row in enumerate(rows):
        if number == MOST_EXPORTED:
            yield f"{_CUT}\r\n"
            return
        line = io.StringIO()
        csv.writer(line).writerow([_cell(row[name]) for name in _COLUMNS])
        yield line.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _as_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number == MOST_EXPORTED:
            yield json.dumps({"cut": _CUT}) + "\n"
            return
        yield json.dumps(row, ensure_ascii=False) + "\n"


async def _body(request: Request) -> dict[str, Any]:
    """Read a JSON object; its content type proves that it does not come from another site's form."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_BODY_BYTES:
            raise Refusal(413, f"the body has more than {MOST_BODY_BYTES:,} bytes")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refusal(415, "send JSON, with the header content-type: application/json")
    try:
        found = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        raise BadParameter("the body is not JSON") from None
    if not isinstance(found, dict):
        raise BadParameter("the body must be a JSON object")
    return found


def _json(value: Any) -> Response:
    return Response(json.dumps(value, ensure_ascii=False, allow_nan=False), media_type="application/json")


def _problem(error: Exception) -> Response:
    """Return the answer for an error."""
    headers = {}
    if isinstance(error, Refusal):
        status = error.status
        headers = {"www-authenticate": 'Basic realm="mainspring"'} if status == 401 else {}
    elif isinstance(error, NoSuchThing):
        return JSONResponse({"error": f"there is no {error.kind} {error.name[:200]!r}"}, 404)
    elif isinstance(error, RunNotFound | JobLookupError):
        status = 404
    elif isinstance(error, OSError):  # includes StoreUnavailable
        status = 503
    elif isinstance(error, TypeError | ValueError):  # includes FilterError and BadParameter
        status = 400
    elif isinstance(error, MainspringError):
        status = 409
    else:
        log.error("the API failed", exc_info=error)
        return JSONResponse({"error": f"this failed: {type(error).__name__}"}, 500)
    return JSONResponse({"error": str(error)}, status, headers)
