"""The dashboard as an ASGI app: routes from the page modules, and answers to requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mainspring.contrib.prometheus import metrics_text
from mainspring.dashboard.api.serving import Api
from mainspring.dashboard.building import Answer, Builder, ViewKey
from mainspring.dashboard.page import Action, Deed, NoSuchThing, Page
from mainspring.dashboard.roles import Accounts, Identity, Role
from mainspring.dashboard.web.files import static_files
from mainspring.dashboard.web.guard import LOOPBACK_HOSTS, Guard
from mainspring.dashboard.web.live import LiveHub, LiveState
from mainspring.dashboard.web.visitors import Visitors, own_path, root_of

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["DashboardApp"]

MOST_BODY_BYTES: Final = 1_000_000
MOST_STREAMS: Final = 500
"""The most browsers to which updates are streamed; the others poll."""
MOST_VIEWS: Final = 60
"""The most different pages to keep rendering for their watchers."""

Endpoint = Callable[[Request], Awaitable[Response]]


class DashboardApp:
    """The dashboard of an app, for any ASGI server.

    Without `accounts` or `identify`, it answers only to this machine, and every visitor may operate. `identify` gets
    the ASGI scope and returns the visitor as `(name, role)`, or None: use it behind your own login. `hosts` are the
    host names besides localhost. With `key`, all processes of a server recognize each other's sessions.
    """

    def __init__(
        self,
        app: Mainspring,
        *,
        accounts: Accounts | None = None,
        identify: Callable[[Scope], tuple[str, str] | None] | None = None,
        hosts: Iterable[str] = (),
        env: str = "",
        key: bytes | None = None,
    ) -> None:
        self.app, self._identify = app, identify
        self._visitors = Visitors(accounts, key)
        self._builder = Builder(app, env or app.env, self._visitors.placeholder)
        self._cursor, self._streams = "", 0
        self.hub: LiveHub[ViewKey] = LiveHub(self._builder.live, self._wait)
        self._static = {file.path: file for file in static_files().values()}
        starlette = Starlette(routes=self._routes(), lifespan=self._lifespan)
        starlette.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=6)
        self.is_open = accounts is None and identify is None
        """Whether visitors need no login: then only this machine may reach the dashboard."""
        self._asgi = Guard(starlette, [*LOOPBACK_HOSTS, *hosts], only_loopback=self.is_open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._asgi(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, starlette: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.close()

    def warm_up(self) -> None:
        """Do one-time work before the first visit: open the store, compile the templates."""
        self._builder.warm_up()

    def close(self) -> None:
        """End the streams of updates; call it in the event loop's thread."""
        self.hub.close()

    def _wait(self, timeout: float) -> bool:
        """Wait until something changes in the store; return False if nothing does."""
        self._cursor, kinds = self.app.changes(self._cursor, timeout)
        self._builder.changed(kinds)
        return bool(kinds)

    def _routes(self) -> list[Route]:
        routes = [
            Route("/static/{name}", self._file),
            Route("/healthz", self._healthz),
            Route("/metrics", self._metrics),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/live", self._live),
            Route("/live/regions", self._regions),
        ]
        routes += Api(self.app, self._visitors, self._who).routes()
        for action in self._builder.actions:
            routes.append(Route(action.path, self._known(partial(self._act, action)), methods=["GET", "POST"]))
        routes += [Route(page.path, self._known(partial(self._page, page))) for page in self._builder.pages]
        return [*routes, Route("/{path:path}", self._known(self._nowhere))]

    # -- who asks, and for what --------------------------------------------------------------------------------

    def _who(self, request: Request) -> Identity | None:
        if self._identify is None:
            return self._visitors.who(request)
        found = self._identify(request.scope)
        return None if found is None else Identity(found[0], Role(found[1]))

    def _key(self, request: Request, role: Role, here: str = "") -> ViewKey:
        root = root_of(request)
        path = request.scope["path"].removeprefix(root) or "/"
        here = here or (f"{path}?{request.url.query}" if request.url.query else path)
        return ViewKey(here, role, self._visitors.zone(request), root)

    def _frame(self, request: Request, who: Identity | None) -> dict[str, Any]:
        """Return the frame's data about the visitor."""
        return {
            "who": who,
            "theme": self._visitors.theme(request),
            "toast": self._visitors.remembered(request),
            "logs_in": self._visitors.accounts is not None and self._identify is None,
            "part": request.headers.get("x-part") == "1",
        }

    def _answer(self, request: Request, answer: Answer) -> Response:
        """Send a page, with this browser's token in its forms."""
        known = self._visitors.session(request)
        session = known or self._visitors.sessions.begin()
        html = answer.html.replace(self._visitors.placeholder, self._visitors.sessions.token(session))
        response = Response(html, answer.status, media_type="text/html; charset=utf-8")
        if known is None:
            self._visitors.give(request, response, session)
        if self._visitors.remembered(request) is not None:
            self._visitors.forget(request, response)
        return response

    def _to_login(self, request: Request) -> Response:
        if self._identify is not None:
            return PlainTextResponse("You are not known here.\n", 401)
        if request.method != "GET" or request.headers.get("x-part"):
            return JSONResponse({"text": "Log in first", "bad": True}, 401)
        asked = urlencode({"next": self._key(request, Role.VIEW).here})
        return RedirectResponse(f"{root_of(request)}/login?{asked}", 303)

    # -- pages -------------------------------------------------------------------------------------------------

    def _known(self, answer: Callable[[Request, Identity], Awaitable[Response]]) -> Endpoint:
        """Let `answer` handle known visitors; send the others to the login."""

        async def answer_known(request: Request) -> Response:
            who = self._who(request)
            return self._to_login(request) if who is None else await answer(request, who)

        return answer_known

    async def _built(self, request: Request, who: Identity, build: Callable[..., Answer], *about: object) -> Response:
        """Build a page in a thread, and send it."""
        key, frame = self._key(request, who.role), self._frame(request, who)
        return self._answer(request, await asyncio.to_thread(build, key, *about, frame))

    async def _page(self, page: Page, request: Request, who: Identity) -> Response:
        if page.phone and not request.url.query and _is_phone(request):
            key = self._key(request, who.role)
            return RedirectResponse(f"{key.root}{key.here}?{page.phone}", 303)
        return await self._built(request, who, self._builder.page, page, request.path_params)

    async def _nowhere(self, request: Request, who: Identity) -> Response:
        error = NoSuchThing("page", request.scope["path"])
        return await self._built(request, who, self._builder.problem, error)

    # -- actions -----------------------------------------------------------------------------------------------

    async def _act(self, action: Action, request: Request, who: Identity) -> Response:
        if request.method != "POST":
            return await self._built(request, who, self._builder.question, action, request.path_params)
        form = await _form(request)
        if not self._visitors.is_token(request, form.get("csrf", "") or request.headers.get("x-csrf-token", "")):
            return self._done(request, form, 403, Deed("This page is too old; load it again, then try once more"))
        if not who.role.covers(action.role):
            return self._done(request, form, 403, Deed(f"That needs the role {action.role}; you may {who.role}"))
        key = self._key(request, who.role)
        status, deed = await asyncio.to_thread(self._builder.act, key, action, request.path_params, form, who)
        return self._done(request, form, status, deed)

    def _done(self, request: Request, form: Mapping[str, str], status: int, deed: Deed) -> Response:
        """Report how an action ended: as JSON to our script, else on the next page."""
        said = {**deed._asdict(), "bad": status != 200}
        if request.headers.get("x-part") == "1":
            return JSONResponse(said, status)
        response = RedirectResponse(f"{root_of(request)}{own_path(deed.go or form.get('next', '/'))}", 303)
        self._visitors.remember(request, response, said)
        if status != 200 and "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse(f"{deed.text}\n", status)
        return response

    # -- login -------------------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        going = own_path(request.query_params.get("next", "/"))
        if self._visitors.accounts is None or self._identify is not None:
            return RedirectResponse(f"{root_of(request)}{going}", 303)
        problem, name, status = "", "", 200
        if request.method == "POST":
            form = await _form(request)
            name = form.get("name", "")[:200]
            waits = self._visitors.waits(request, name)
            if not self._visitors.is_token(request, form.get("csrf", "")):
                problem, status = "This page is too old. Try once more.", 403
            elif waits:
                problem, status = f"Too many tries. Wait {waits:.0f} s.", 429
            else:
                who = await asyncio.to_thread(self._visitors.check, request, name, form.get("password", "")[:1000])
                if who is not None:
                    response = RedirectResponse(f"{root_of(request)}{going}", 303)
                    self._visitors.give(request, response, self._visitors.sessions.begin(who.name))
                    return response
                problem, status = "No account has this name and password.", 401
        frame = {"theme": self._visitors.theme(request), "problem": problem, "name": name, "going": going}
        html = self._builder.login(root_of(request), frame)
        return self._answer(request, Answer(status, html))

    async def _logout(self, request: Request) -> Response:
        form = await _form(request)
        response = RedirectResponse(f"{root_of(request)}/login", 303)
        if self._visitors.is_token(request, form.get("csrf", "")):
            self._visitors.give(request, response, self._visitors.sessions.begin())
        return response

    # -- updates -----------------------------------------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        who = self._who(request)
        if who is None:
            return PlainTextResponse("Log in first.\n", 401)
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("Too many watch already; ask for updates instead.\n", 503)
        key = self._key(request, who.role, own_path(request.query_params.get("view", "/")))
        if not self._builder.has(key):
            return PlainTextResponse("There is no such page.\n", 404)
        if self.hub.watched >= MOST_VIEWS and not self.hub.watches(key):
            return PlainTextResponse("Too many pages are watched already; ask for updates instead.\n", 503)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(request, key), media_type="text/event-stream", headers=headers)

    async def _stream(self, request: Request, key: ViewKey) -> AsyncIterator[str]:
        known: dict[str, str] = {}
        page = _read_at(request)
        self._streams += 1
        try:
            yield "retry: 1000\n\n"
            async for state in self.hub.watch(key):
                who = self._who(request)
                if who is None or who.role != key.role:  # the role has changed, or the session has ended
                    break
                if state is None or state.is_older_than(page):
                    yield ": still here\n\n"
                    continue
                yield f"data: {json.dumps(self._changes(request, state, known))}\n\n"
        finally:
            self._streams -= 1

    def _changes(self, request: Request, state: LiveState, known: dict[str, str]) -> dict[str, Any]:
        """Return the changes in a view since it was last sent."""
        changed = {name: region for name, region in state.regions.items() if known.get(name) != region.hash}
        known |= {name: region.hash for name, region in changed.items()}
        session = self._visitors.session(request)
        token = "" if session is None else self._visitors.sessions.token(session)
        regions = {
            name: {"hash": each.hash, "html": each.html.replace(self._visitors.placeholder, token)}
            for name, each in changed.items()
        }
        return {
            "now": state.now,
            "read_at": state.read_at,
            "needs": state.needs,
            "problem": state.problem,
            "regions": regions,
        }

    async def _regions(self, request: Request) -> Response:
        """Answer a browser that polls for updates instead of streaming them."""
        who = self._who(request)
        if who is None:
            return PlainTextResponse("Log in first.\n", 401)
        key = self._key(request, who.role, own_path(request.query_params.get("view", "/")))
        state = await asyncio.to_thread(self._builder.shared, key)
        tag = '"' + "-".join(region.hash for region in state.regions.values()) + '"'
        known = request.headers.get("if-none-match") == tag
        if (known and not state.problem) or state.is_older_than(_read_at(request)):
            return Response(status_code=304, headers={"etag": tag})
        return JSONResponse(self._changes(request, state, {}), headers={"etag": tag})

    # -- for machines ------------------------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        file = self._static.get(f"/static/{request.path_params['name']}")
        if file is None:
            return PlainTextResponse("There is no such file.\n", 404)
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, media_type=file.type, headers={**headers, "content-encoding": "gzip"})
        return Response(file.content, media_type=file.type, headers=headers)

    async def _healthz(self, request: Request) -> Response:
        try:
            await asyncio.to_thread(self.app.store.beat)
        except OSError:
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    async def _metrics(self, request: Request) -> Response:
        who = self._who(request) or await asyncio.to_thread(self._visitors.who_by_password, request)
        if who is None:
            return PlainTextResponse("Log in first.\n", 401, {"www-authenticate": 'Basic realm="mainspring"'})
        try:
            text = await asyncio.to_thread(metrics_text, self.app)
        except OSError as error:
            return PlainTextResponse(f"the store does not answer: {error}\n", 503)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _read_at(request: Request) -> int:
    """Return the store's time at which the polling page was read; 0 if the request does not say."""
    told = request.query_params.get("read_at", "")
    return int(told) if re.fullmatch(r"[0-9]{1,18}", told) else 0


def _is_phone(request: Request) -> bool:
    """Return True if the browser claims to be on a phone; our script detects other narrow screens."""
    headers = request.headers
    return headers.get("sec-ch-ua-mobile") == "?1" or "Mobi" in headers.get("user-agent", "")


async def _form(request: Request) -> dict[str, str]:
    """Read the fields of a form; if a name occurs twice, use the last."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            return {}
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        return {}
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=2000))
    except ValueError:
        return {}
