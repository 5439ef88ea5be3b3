"""Render pages from templates: the environment, whole pages, and single regions."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from mainspring.core.insight.wording import listed, several
from mainspring.dashboard.history import RANGES
from mainspring.dashboard.looks import charts, shapes, sparks, values
from mainspring.dashboard.looks.times import NO_TIME
from mainspring.dashboard.page import View
from mainspring.dashboard.roles import Role
from mainspring.dashboard.web.files import static_path
from mainspring.errors import HistoryNotKept, StoreUnavailable

__all__ = ["RenderedRegion", "Renderer"]

_TICKING: Final = re.compile(r"(<time [^>]*data-tick[^>]*>)[^<]*")
"""The parts that the browser updates itself: they must not make a region look changed."""

_CLAUSE: Final = re.compile(r".{2,90}?[.:;](?=\s)", re.DOTALL)

_FRAME: Final = {"who": None, "theme": "", "toast": None, "logs_in": False, "env": "", "app_name": "", "part": False}
"""The defaults of the frame around a page."""

log = logging.getLogger("mainspring.dashboard")


def first_bold(sentence: str) -> Markup:
    """Return a text with its first clause in bold: the state comes before the reason."""
    found = _CLAUSE.match(sentence)
    if found is None:
        return Markup("<b>{}</b>").format(sentence)
    return Markup("<b>{}</b>{}").format(found[0], sentence[found.end() :])


def short_type(name: str) -> str:
    """Return the name of an exception without its module."""
    return name.rpartition(".")[2]


class RenderedRegion(NamedTuple):
    """A region's markup, and a hash that ignores the mere passing of time."""

    html: str
    hash: str

    @classmethod
    def of(cls, html: str) -> RenderedRegion:
        """Hash a region's markup."""
        return cls(html, hashlib.sha256(_TICKING.sub(r"\1", html).encode("utf-8", "replace")).hexdigest()[:16])


class Renderer:
    """A renderer of pages and regions, with the macros of `parts/macros.html` as `p`."""

    def __init__(self) -> None:
        self._env = env = Environment(
            loader=PackageLoader("mainspring.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        env.globals |= {
            "charts": charts,
            "sparks": sparks,
            "icon": shapes.icon,
            "mark": shapes.mark,
            "tone": shapes.tone,
            "status": shapes.status_word,
            "spiral": shapes.spiral,
            "sprite": shapes.sprite(),
            "static": static_path,
            "value": values.shown_value,
            "arguments_text": values.arguments_text,
            "cut": values.cut_middle,
            "both_ends": values.both_ends,
            "count_text": values.count_text,
            "listed": listed,
            "several": several,
            "first_bold": first_bold,
            "short_type": short_type,
            "roles": Role,
            "ranges": [(name, each.words) for name, each in RANGES.items()],
            "dash": NO_TIME,
        }
        env.filters["n"] = lambda number: f"{number:,}"
        env.globals["p"] = env.get_template("parts/macros.html").module

    def compile_all(self) -> None:
        """Compile all templates, so that the first visitor does not wait for that."""
        for name in self._env.list_templates():
            self._env.get_template(name)

    def page(self, template: str, view: View, data: Mapping[str, Any], regions: Mapping[str, RenderedRegion]) -> str:
        """Render a whole page around its regions."""

        def region(name: str, cls: str = "") -> Markup:
            found = regions[name]
            box = '<div class="{}" data-live="{}" data-hash="{}">{}</div>'
            return Markup(box).format(cls, name, found.hash, Markup(found.html))

        whole = {"title": view.page.title if view.page else "", **_FRAME, **data, "view": view, "when": view.times}
        return self._env.get_template(template).render(**whole, region=region)

    def regions(self, view: View, data: dict[str, Any]) -> dict[str, RenderedRegion]:
        """Read and render each region of a page; show an error in place of a region that fails."""
        assert view.page is not None
        template, found = self._env.get_template(view.page.template), {}
        for name, read in view.page.regions.items():
            try:
                more = {} if read is None else read(view, data)
                html = self._block(template, name, {**data, **more, "view": view, "when": view.times})
            except (StoreUnavailable, OSError):
                raise
            except HistoryNotKept as error:
                html = self._block(self._env.get_template("parts/no_history.html"), "region", {"error": error})
            except Exception as error:
                log.exception("the region %s of %s could not be shown", name, view.path)
                html = self._block(
                    self._env.get_template("parts/region_error.html"), "region", {"error": error, "view": view}
                )
            found[name] = RenderedRegion.of(html)
        return found

    def nav(self, view: View, items: Sequence[Any]) -> RenderedRegion:
        """Render the sidebar's pages with their numbers, which change on every page."""
        data = {"view": view, "nav_items": items, "here": view.nav, "summary": view.summary}
        return RenderedRegion.of(self._block(self._env.get_template("parts/nav.html"), "nav", data))

    def part(self, template: str, **data: Any) -> str:
        """Render a template that is not a page."""
        return self._env.get_template(template).render(**data)

    def _block(self, template: Template, name: str, data: Mapping[str, Any]) -> str:
        return "".join(template.blocks[name](template.new_context(dict(data))))
