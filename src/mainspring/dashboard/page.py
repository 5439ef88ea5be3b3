"""The parts of every page module: a page, its view, and its actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from mainspring.app.insight.gathering import KnownFacts
from mainspring.dashboard.looks.times import Times
from mainspring.dashboard.memo import SharedFacts, remembered
from mainspring.dashboard.roles import Role

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.declaring.task import Task
    from mainspring.core.insight.explanation import Explanation
    from mainspring.dashboard.summary import Summary
    from mainspring.jobstores.values import NodeInfo

__all__ = ["Action", "ActionLink", "BadParameter", "Deed", "NoSuchThing", "Page", "Question", "View"]
__all__ += ["address", "there"]

T = TypeVar("T")

MOST_CHARS: Final = 2000
"""The most characters in one URL parameter."""
_KIND_PATHS: Final = {"run": "/runs", "job": "/jobs", "queue": "/queues", "node": "/nodes", "flow": "/flows"}


class BadParameter(ValueError):
    """An unusable URL parameter or form field; the text names it, and says what would be right."""


class NoSuchThing(LookupError):
    """The subject of the page does not exist; `name` is the requested name."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind, self.name = kind, name


def there(found: T | None, kind: str, name: str) -> T:
    """Return `found`, or raise NoSuchThing if it is None."""
    if found is None:
        raise NoSuchThing(kind, name)
    return found


class Question(NamedTuple):
    """The question that an action asks before it acts; without a `button`, it only says that there is nothing to do.

    `typed` is a name to type, for an action that cannot be undone. `fields` are further inputs, which the template
    `template` renders.
    """

    title: str
    text: str
    button: str
    typed: str = ""
    note: str = ""
    template: str = ""
    fields: Mapping[str, Any] = {}
    bad: bool = False
    """Whether the button is red."""


class Deed(NamedTuple):
    """The message of a toast: a sentence about the result, a link to it, and the action that undoes it."""

    text: str
    link: str = ""
    undo: str = ""
    go: str = ""
    """The page to go to instead of back, because the action's subject may be gone."""


Reader = Callable[["View"], dict[str, Any]]
RegionReader = Callable[["View", dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Action:
    """An action that changes the store: POST to its path carries it out, GET asks first.

    `weight` is `undo` (done at once; the toast offers to undo it), `ask` (a dialog with numbers) or `type` (the visitor
    must type a name).
    """

    name: str
    path: str
    do: Callable[[View, Mapping[str, str]], Deed]
    ask: Callable[[View], Question]
    role: Role = Role.OPERATE
    weight: str = "ask"


@dataclass(frozen=True)
class Page:
    """A page: `read` reads its shared data, each region may read more; both run in a thread, since stores block.

    A region is a block of the template with the same name; the page places it with `{{ region("name") }}`. A region
    that fails shows why, while the others stay. Only regions change live.
    """

    path: str
    nav: str
    title: str
    template: str
    read: Reader = lambda view: {}
    regions: Mapping[str, RegionReader | None] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    phone: str = ""
    """The parameters with which the page opens on a narrow screen, if its address has none."""


class ActionLink(NamedTuple):
    """An action as a button of a page: its address, whether it asks first, and whether this visitor may use it."""

    url: str
    asks: bool
    allowed: bool
    role: Role


def address(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return a path with its parameters, if any."""
    asked = urlencode(pairs)
    return f"{path}?{asked}" if asked else path


def _given(params: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in params.items() if value not in (None, "")]


@dataclass(frozen=True, eq=False)
class View:
    """One view of a page: the app, the parameters, the role and the zone. The rendering depends on nothing else.

    Viewers with the same role and zone share a rendering, so a page never shows who looks at it.
    """

    app: Mainspring
    page: Page | None
    path: str
    params: Mapping[str, str]
    query: Mapping[str, list[str]]
    role: Role
    times: Times
    summary: Summary
    actions: Mapping[str, Action]
    root: str = ""
    csrf: str = ""
    env: str = ""
    facts: SharedFacts = field(default_factory=SharedFacts)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return the first result of `make`, which the regions of a view and the watched views share.

        As with `cached`, it must depend on the app alone.
        """
        return self.facts.once(name, make)

    @property
    def keeps_history(self) -> bool:
        """Whether the store keeps acts and counters; without them, a page omits their numbers."""
        return self.app.store.keeps_history

    @property
    def nodes(self) -> list[NodeInfo]:
        """The living nodes, read once for all regions."""
        return self.once("nodes", lambda: self.app.nodes(now=self.now))

    @property
    def tasks(self) -> list[Task[..., Any]]:
        """The tasks of the app, without mainspring's own."""
        return [task for task in self.app.tasks if not task.name.startswith("mainspring:")]

    def explain(self, subject: Any, **known: Any) -> Explanation:
        """Explain a subject; `known` holds fields of `KnownFacts` that the page has read already."""
        if "nodes" in self.facts:
            known["nodes"] = self.nodes
        return self.app.insight.explain_with(KnownFacts(self.now, **known), subject)

    def cached(self, name: Hashable, seconds: float, make: Callable[[], T]) -> T:
        """Return the result of `make`, or one that another view got in the last `seconds`.

        The result must depend on the app alone: not on the role, the zone or the parameters of this view.
        """
        return remembered(self.app, name, seconds, make)

    @property
    def now(self) -> int:
        """The store's time when the view was made, in microseconds."""
        return self.times.now

    @property
    def nav(self) -> str:
        """The sidebar entry of this view; a question belongs to the entry of its path's first part."""
        return self.page.nav if self.page is not None else self.path.split("/")[1]

    # -- parameters --------------------------------------------------------------------------------------------

    def text(self, name: str, default: str = "", most: int = MOST_CHARS) -> str:
        """Return a parameter as text; raise BadParameter if it is too long or given twice."""
        given = self.query.get(name, [])
        if not given:
            return default
        if len(given) > 1:
            raise BadParameter(f"{name} is given {len(given)} times; give it once")
        if len(given[0]) > most:
            raise BadParameter(f"{name} has {len(given[0]):,} characters; {most:,} are the most")
        return given[0].strip()

    def choice(self, name: str, choices: Mapping[str, Any] | tuple[str, ...], default: str) -> str:
        """Return a parameter that must be one of several words."""
        found = self.text(name, default)
        if found not in choices:
            raise BadParameter(f"{name}={found[:50]!r} is unknown; it can be {', '.join(choices)}")
        return found

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a parameter that must be a whole number within bounds."""
        found = self.text(name, str(default), 20)
        if not re.fullmatch(r"\d{1,9}", found) or not least <= int(found) <= most:
            raise BadParameter(f"{name}={found!r} is not a number from {least:,} to {most:,}")
        return int(found)

    # -- links -------------------------------------------------------------------------------------------------

    @property
    def here(self) -> str:
        """The path and query of this view, below the root."""
        return address(self.path, sorted((name, value) for name, values in self.query.items() for value in values))

    def url(self, path: str, **params: object) -> str:
        """Return the address of a path below the root, with its non-empty parameters."""
        return address(self.root + path, _given(params))

    def of(self, kind: str, name: str, rest: str = "") -> str:
        """Return the address of a run, job, queue, node or flow."""
        return f"{self.root}{self.path_of(kind, name)}{rest}"

    def path_of(self, kind: str, name: str) -> str:
        """Return the path of a run, job, queue, node or flow, below the root."""
        return f"{_KIND_PATHS[kind]}/{quote(name, safe='')}"

    def change(self, **params: object) -> str:
        """Return the address of this view with other parameters, from the first page; an empty value drops one."""
        asked = {name: values for name, values in self.query.items() if name not in params and name != "after"}
        pairs = [(name, value) for name, values in asked.items() for value in values] + _given(params)
        return address(self.root + self.path, sorted(pairs))

    def act(self, name: str, /, **params: str) -> ActionLink:
        """Return the link of an action, with the parameters of its path."""
        action = self.actions[name]
        path = action.path
        for key, value in params.items():
            path = path.replace(f"{{{key}}}", quote(value, safe="")).replace(f"{{{key}:path}}", quote(value, safe=""))
        asks = action.weight != "undo" or self.env == "production"
        return ActionLink(f"{self.root}{path}", asks, self.role.covers(action.role), action.role)
