"""Build pages, questions and live regions, and carry out actions. Everything here blocks and runs in threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from starlette.routing import compile_path

from mainspring.core.insight.explanation import Explanation
from mainspring.dashboard.looks.times import Times, zone_of
from mainspring.dashboard.memo import SharedFacts, forget, remembered
from mainspring.dashboard.page import Action, BadParameter, Deed, NoSuchThing, Page, View
from mainspring.dashboard.pages import PAGES
from mainspring.dashboard.rendering import RenderedRegion, Renderer
from mainspring.dashboard.roles import Identity, Role
from mainspring.dashboard.summary import NO_SUMMARY, SummaryReader, store_address
from mainspring.dashboard.web.live import LiveState
from mainspring.errors import HistoryNotKept, JobLookupError, MainspringError, RunNotFound

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Answer", "Builder", "ViewKey"]

log = logging.getLogger("mainspring.dashboard")

MOST_PARAMETERS: Final = 100
SHARED_SECONDS: Final = 1.0
"""The time for which polling requests share a rendered page, and watched views share facts about queues and nodes."""

NAV: Final = (
    ("", (("overview", "Overview", "/", "g o"),)),
    ("Schedule", (("jobs", "Jobs", "/jobs", "g j"), ("timeline", "Timeline", "/timeline", "g t"))),
    (
        "Work",
        (
            ("runs", "Runs", "/runs", "g r"),
            ("flows", "Flows", "/flows", "g f"),
            ("queues", "Queues", "/queues", "g q"),
            ("errors", "Errors", "/errors", "g e"),
        ),
    ),
    ("Fleet", (("nodes", "Nodes", "/nodes", "g n"), ("system", "System", "/system", "g s"))),
)
"""The sidebar: headings, each with its pages and their keys."""


class ViewKey(NamedTuple):
    """The inputs of a rendered view: the address below the root, the role, the zone, the root."""

    here: str
    role: Role
    zone: str
    root: str


class Answer(NamedTuple):
    """A page to send, or a sentence about what went wrong."""

    status: int
    html: str


def _parameters(query: str) -> dict[str, list[str]]:
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise BadParameter(f"the address has more than {MOST_PARAMETERS} parameters") from None


class Builder:
    """A builder of markup from the app's verbs."""

    def __init__(self, app: Mainspring, env: str, placeholder: str) -> None:
        self.app, self._env, self._placeholder = app, env, placeholder
        self._summaries, self._renderer = SummaryReader(app), Renderer()
        self._facts, self._facts_until = SharedFacts(), 0.0
        self.pages = sorted(PAGES, key=lambda page: (page.path.count("{"), -len(page.path)))
        found = {action.name: action for page in PAGES for action in page.actions}
        self.actions = sorted(found.values(), key=lambda action: (action.path.count("{"), -len(action.path)))
        self._by_name = found
        self._patterns = [(compile_path(page.path)[0], page) for page in self.pages]
        paths = {page.path for page in self.pages}
        self._nav = [(head, [item for item in items if item[2] in paths]) for head, items in NAV]

    # -- views -------------------------------------------------------------------------------------------------

    def _view(
        self,
        key: ViewKey,
        page: Page | None,
        params: Mapping[str, str],
        *,
        bare: bool = False,
        facts: SharedFacts | None = None,
    ) -> View:
        """Make a view; unless it is `bare`, ask the store for the time and the summary."""
        parts = urlsplit(key.here)
        now = int(time.time() * 1e6) if bare else self.app.store.beat()
        return View(
            self.app,
            page,
            path=parts.path,
            params=params,
            query={} if bare else _parameters(parts.query),
            role=key.role,
            times=Times(zone_of(key.zone, self.app.timezone), now),
            summary=NO_SUMMARY if bare else self._summaries.read(),
            actions=self._by_name,
            root=key.root,
            csrf=self._placeholder,
            env=self._env,
            facts=facts or SharedFacts(),
        )

    def page(self, key: ViewKey, page: Page, params: Mapping[str, str], frame: Mapping[str, Any]) -> Answer:
        """Build a page; if that fails, build one that says why."""
        try:
            view = self._view(key, page, params)
            data = page.read(view)
            regions = self._renderer.regions(view, data)
            return Answer(data.get("status", 200), self._whole(page.template, view, {**frame, **data}, regions))
        except Exception as error:
            return self.problem(key, error, frame)

    def problem(self, key: ViewKey, error: Exception, frame: Mapping[str, Any]) -> Answer:
        """Build the page that explains an error."""
        status, title, told = self._told(error)
        view = self._bare_or_whole(key, status)
        data = {**frame, "title": title, "told": told, "http_status": status}
        return Answer(status, self._whole("problem.html", view, data))

    def _bare_or_whole(self, key: ViewKey, status: int) -> View:
        """Make the view of a page without content; it has the sidebar for 400, 404 and 409 if the store answers."""
        if status in (400, 404, 409):
            with suppress(Exception):
                return self._view(key, None, {})
        return self._view(key, None, {}, bare=True)

    def _told(self, error: Exception) -> tuple[int, str, Explanation]:
        """Return the status, the title and the explanation of an error."""
        if isinstance(error, BadParameter):
            return 400, "That cannot be shown", Explanation(kind="page", id="", state="late", sentence=f"{error}.")
        if isinstance(error, NoSuchThing | JobLookupError | RunNotFound):
            name = error.name if isinstance(error, NoSuchThing) else str(error.args[0])
            return 404, "Not found", self._explain_missing(name, error)
        if isinstance(error, OSError):  # includes StoreUnavailable
            why = str(error).rstrip(".")
            named = " does not answer" in why  # most drivers' errors name the store
            sentence = f"{why}." if named else f"The store at {store_address(self.app)} does not answer: {why}."
            return 503, "The store does not answer", Explanation(kind="store", id="", state="down", sentence=sentence)
        if isinstance(error, HistoryNotKept):
            return 409, "No history is kept", Explanation(kind="page", id="", state="new", sentence=f"{error}.")
        if isinstance(error, MainspringError):
            return 409, "That was refused", Explanation(kind="page", id="", state="late", sentence=f"{error}.")
        log.error("a page failed", exc_info=error)
        sentence = f"This page failed: {type(error).__name__}. The log of the dashboard has the traceback."
        return 500, "This page failed", Explanation(kind="page", id="", state="down", sentence=sentence)

    def _explain_missing(self, name: str, error: Exception) -> Explanation:
        kind = error.kind if isinstance(error, NoSuchThing) else ""
        with suppress(Exception):
            if kind in ("", "run", "job", "queue", "node"):
                return self.app.explain(f"{kind}:{name}" if kind else name)
        sentence = f"There is no {kind} called {name!r} here."
        return Explanation(kind="unknown", id=name, state="unknown", sentence=sentence)

    def _whole(
        self, template: str, view: View, data: Mapping[str, Any], regions: Mapping[str, RenderedRegion] | None = None
    ) -> str:
        """Render a page in its frame, with the sidebar."""
        whole = {"app_name": self.app.name, "env": self._env, "nav_items": self._nav, **data}
        return self._renderer.page(
            template, view, whole, {**(regions or {}), "nav": self._renderer.nav(view, self._nav)}
        )

    # -- live --------------------------------------------------------------------------------------------------

    def changed(self, kinds: Sequence[str]) -> None:
        """Drop cached facts after a change; drop the summary, too, unless only runs have changed."""
        if kinds:
            self._facts_until = 0.0
        if set(kinds) - {"runs"}:
            self._summaries.forget()

    def _shared_facts(self) -> SharedFacts:
        """Return the facts that watched views share, which are at most a second old."""
        now = time.monotonic()
        if now >= self._facts_until:
            self._facts, self._facts_until = SharedFacts(), now + SHARED_SECONDS
        return self._facts

    def live(self, key: ViewKey) -> LiveState:
        """Render the regions of a watched view."""
        try:
            page, params = self.find(urlsplit(key.here).path)
            facts = self._shared_facts()
            view = self._view(key, page, params, facts=facts)
            read_at = facts.begin(view.now)
            regions: dict[str, RenderedRegion] = self._renderer.regions(view, page.read(view))
            regions["nav"] = self._renderer.nav(view, self._nav)
            return LiveState(regions, view.now, needs=view.summary.needs, read_at=read_at)
        except Exception as error:
            return LiveState({}, 0, self._told(error)[2].sentence)

    def warm_up(self) -> None:
        """Compile the templates, and build the first page once, which opens the store."""
        self._renderer.compile_all()
        self.live(ViewKey("/", Role.VIEW, "", ""))

    def shared(self, key: ViewKey) -> LiveState:
        """Render the regions of a view, or return a rendering that is at most a second old."""
        return remembered(self.app, ("live", key), SHARED_SECONDS, lambda: self.live(key))

    def has(self, key: ViewKey) -> bool:
        """Return True if there is a page at this address."""
        try:
            self.find(urlsplit(key.here).path)
        except NoSuchThing:
            return False
        return True

    def find(self, path: str) -> tuple[Page, dict[str, str]]:
        """Return the page at a path, and the parameters in it."""
        for pattern, page in self._patterns:
            if found := pattern.match(path):
                return page, found.groupdict()
        raise NoSuchThing("page", path)

    def login(self, root: str, frame: Mapping[str, Any]) -> str:
        """Build the login page."""
        return self._renderer.part("login.html", root=root, csrf=self._placeholder, app_name=self.app.name, **frame)

    # -- actions -----------------------------------------------------------------------------------------------

    def question(self, key: ViewKey, action: Action, params: Mapping[str, str], frame: Mapping[str, Any]) -> Answer:
        """Build the page that asks before an action."""
        try:
            view = self._view(key, None, params)
            asked = action.ask(view)
            data = {
                **frame,
                "title": asked.title,
                "question": asked,
                "link": view.act(action.name, **params),
                "back": view.text("next"),
            }
            return Answer(200, self._whole("question.html", view, data))
        except Exception as error:
            return self.problem(key, error, frame)

    def act(
        self, key: ViewKey, action: Action, params: Mapping[str, str], form: Mapping[str, str], who: Identity
    ) -> tuple[int, Deed]:
        """Carry out an action in a person's name; return the status and the sentence for the toast."""
        try:
            view = self._view(key, None, params)
            if action.weight == "type":
                asked = action.ask(view)
                if asked.typed and form.get("typed", "").strip() != asked.typed:
                    return 400, Deed(f"Nothing was done: type {asked.typed} to confirm")
            with self.app.acting(who.name or None, form.get("why", "")[:500]):
                done = action.do(view, form)
            self.changed(("acts",))
            forget(self.app)
            return 200, done
        except (BadParameter, TypeError, ValueError) as error:
            return 400, Deed(str(error) or type(error).__name__)
        except Exception as error:
            status, _, told = self._told(error)
            return status, Deed(told.sentence)
