"""A flow as a graph: layers from left to right, few crossings, the critical path in steel. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from mainspring.dashboard.looks.shapes import tone

__all__ = ["GraphNode", "draw", "layers_of"]

MOST_NODES: Final = 150
WIDTH: Final = 178
HEIGHT: Final = 70
ACROSS: Final = 236
DOWN: Final = 90
SWEEPS: Final = 4


class GraphNode(NamedTuple):
    """A step to draw; `after` holds the ids of its predecessors."""

    id: str
    kind: str
    title: str
    arguments: str
    word: str
    url: str
    after: tuple[str, ...]
    share: float | None = None
    hot: bool = False
    """Whether the node lies on the critical path."""


def layers_of(nodes: Sequence[GraphNode]) -> list[list[str]]:
    """Put each node one layer after its last predecessor, and order the layers so that few lines cross."""
    known = {node.id: node for node in nodes}
    depth: dict[str, int] = {}
    for node in nodes:  # nodes come in order, so their predecessors are placed already
        depth[node.id] = 1 + max((depth[each] for each in node.after if each in depth), default=-1)
    layers: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node in nodes:
        layers[depth[node.id]].append(node.id)
    following: dict[str, list[str]] = {}
    for node in nodes:
        for each in node.after:
            following.setdefault(each, []).append(node.id)
    before = {node.id: [each for each in node.after if each in known] for node in nodes}
    for sweep in range(SWEEPS):
        links = before if sweep % 2 == 0 else following
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _sort(layer, layers, links)
    return layers


def _sort(layer: list[str], layers: Sequence[Sequence[str]], links: Mapping[str, Sequence[str]]) -> None:
    place = {name: number / max(1, len(each)) for each in layers for number, name in enumerate(each)}

    def middle(name: str) -> float:
        linked = [place[each] for each in links.get(name, ())]
        return sum(linked) / len(linked) if linked else place[name]

    layer.sort(key=middle)


def draw(nodes: Sequence[GraphNode], label: str) -> Markup:
    """Draw a graph; the table beside it gives the same information in words."""
    shown = nodes[:MOST_NODES]
    layers = layers_of(shown)
    tallest = max((len(layer) for layer in layers), default=1)
    places = {
        name: (20 + column * ACROSS, 20 + row * DOWN + (tallest - len(layer)) * DOWN // 2)
        for column, layer in enumerate(layers)
        for row, name in enumerate(layer)
    }
    width, height = 40 + WIDTH + (len(layers) - 1) * ACROSS, 20 + tallest * DOWN
    by_id = {node.id: node for node in shown}
    parts = [
        _edge(places[each], places[node.id], by_id[each], node)
        for node in shown
        for each in node.after
        if each in places
    ]
    parts += [_node(node, *places[node.id]) for node in shown]
    shape = '<svg class="flow" width="{}" height="{}" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>'
    return Markup(shape).format(width, height, width, height, label, Markup("").join(parts))


def _edge(start: tuple[int, int], end: tuple[int, int], before: GraphNode, node: GraphNode) -> Markup:
    x1, y1 = start[0] + WIDTH, start[1] + HEIGHT // 2
    x2, y2 = end[0] - 2, end[1] + HEIGHT // 2
    middle = (x1 + x2) // 2
    cls = "e" + (" hot" if before.hot and node.hot else "") + ("" if before.kind == "succeeded" else " blocked")
    path = f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"
    return Markup(f'<path class="{cls}" d="{path}" marker-end="url(#arrow)"/>')


def _node(node: GraphNode, x: int, y: int) -> Markup:
    parts = [
        Markup('<g class="n {}"><rect class="box" x="{}" y="{}" width="{}" height="{}" rx="9"/>').format(
            node.kind, x, y, WIDTH, HEIGHT
        )
    ]
    top = y + 8 * ((not node.arguments) + (not node.word))  # centre the node's lines
    use = '<svg x="{}" y="{}" width="14" height="14" class="m t-{}"><use href="#m-{}"/></svg>'
    parts.append(Markup(use).format(x + 12, top + 11, tone(node.kind), node.kind))
    line = '<text class="{}" x="{}" y="{}">{}</text>'
    parts.append(Markup(line).format("t", x + 33, top + 22, node.title))
    below = top + 38
    if node.arguments:
        parts.append(Markup(line).format("a", x + 33, below, node.arguments))
        below += 16
    if node.word:
        parts.append(Markup(line).format("w", x + 33, below, node.word))
    if node.share is not None:
        bar = '<rect class="{}" x="{}" y="{}" width="{}" height="3" rx="1.5"/>'
        parts.append(Markup(bar).format("pbg", x + 9, y + HEIGHT - 3, WIDTH - 18))
        parts.append(Markup(bar).format("pfg", x + 9, y + HEIGHT - 3, round((WIDTH - 18) * node.share)))
    parts.append(Markup("</g>"))
    inside = Markup("").join(parts)
    return (
        Markup('<a href="{}" aria-label="{}">{}</a>').format(node.url, f"{node.title}: {node.kind}", inside)
        if node.url
        else inside
    )
