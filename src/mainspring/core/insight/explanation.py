"""An explanation, and the facts that it is made of. Pure."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any, Final

import msgspec

from mainspring.core.insight.acts import Act
from mainspring.core.insight.wording import brief, duration, listed, moment
from mainspring.core.instants import SECOND
from mainspring.core.run import Run

__all__ = ["FIRST_NAMED", "Explanation", "Fact", "NodeFacts", "PredecessorFacts", "QueueFacts", "Scene"]

FIRST_NAMED: Final = 3
"""Name this many ids of the subjects that share a cause."""


class Fact(msgspec.Struct, frozen=True):
    """A fact that supports an explanation; `kind` and `id` name the run, job, queue or node that it is about."""

    name: str
    value: str
    kind: str | None = None
    id: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a subject has or has not run: a sentence or two, the facts behind them, and commands that help.

    `kind` is `run`, `job`, `queue`, `node`, `system` or `unknown`. `actions` are arguments for the command line,
    without `mainspring`. `parts` are the explanations in a summary, the most pressing first. `cause` is the part of the
    sentence that several subjects can share; a part that states it once for all of them lists their `ids`.
    """

    kind: str
    id: str
    state: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    actions: tuple[str, ...] = ()
    parts: tuple[Explanation, ...] = ()
    cause: str = ""
    ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    @property
    def about(self) -> str:
        """The subject: its kind and id, or the number of subjects and the first ids."""
        if len(self.ids) < 2:
            return f"{self.kind} {self.id!r}"
        return f"{len(self.ids):,} {self.kind}s, {listed([repr(each) for each in self.ids], FIRST_NAMED)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a node that explanations need; `state` is `silent` if its heartbeats are missing."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...] = ()
    state: str = "running"
    missing: tuple[str, ...] = ()
    stuck: int = 0
    started_at: int = 0
    beat_at: int = 0
    every: float = 0.0
    cluster: str = ""

    @property
    def name(self) -> str:
        """The name to show to people."""
        return f"{self.host}:{self.pid}"


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a queue that explanations need; `ahead` and `urgent` are None if too many runs wait to count."""

    name: str
    waiting: int = 0
    delayed: int = 0
    blocked: int = 0
    running: int = 0
    paused: bool = False
    limit: int | None = None
    """The most of its runs that may go on at once."""
    oldest_at: int | None = None
    ahead: int | None = None
    """The number of runs that nodes will claim before the explained run."""
    urgent: int | None = None
    """The number of these that have a higher priority."""


class PredecessorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The predecessors of a run: how many there are, how many have not ended, and one that has not ended or failed."""

    total: int = 0
    waits: int = 0
    first: Run | None = None
    holders: tuple[Run, ...] = ()
    """The running runs that hold the slots of its gate, if it waits for one."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The context of an explanation: the time, the nodes, and the acts of people on the subject, newest first."""

    now: int
    zone: tzinfo
    lease: float
    app: str = "MODULE:APP"
    nodes: tuple[NodeFacts, ...] = ()
    acts: tuple[Act, ...] = ()

    def serving(self, queue: str) -> list[NodeFacts]:
        """Return the nodes that claim runs from a queue."""
        return [node for node in self.nodes if queue in node.queues and node.state not in ("draining", "silent")]

    def node(self, node_id: str | None) -> NodeFacts | None:
        """Return a node by its id."""
        return next((node for node in self.nodes if node.id == node_id), None)

    def act(self, *verbs: str) -> Act | None:
        """Return the newest act with one of these verbs."""
        return next((act for act in self.acts if act.verb in verbs), None)

    def at(self, us: int) -> str:
        """Return an instant in words."""
        return moment(us, self.zone, self.now)

    def ago(self, us: int) -> str:
        """Return how long ago an instant is, in words."""
        return duration(self.now - us)

    def ahead(self, us: int) -> str:
        """Return how far ahead an instant is, in words."""
        return duration(us - self.now)

    def by(self, act: Act | None) -> str:
        """Say who acted, when and why; return an empty text without an act."""
        if act is None:
            return ""
        why = f': "{brief(act.why)}"' if act.why else ""
        return f" by {act.by}, {self.at(act.at)}{why}"

    def silent_for(self, node: NodeFacts) -> str:
        """Return the time since the last heartbeat of a node, in words."""
        return duration(max(self.now - node.beat_at, SECOND))
