"""The dashboard: see and steer everything from a browser. It needs the extra `dashboard`.

`app.asgi()` mounts it in an ASGI app, `mainspring dashboard` serves it, `mainspring dev` and `demo` include it.

**How to add a page.** A page is one module in `pages/` and one template in `templates/`, in folders of the same name.
`pages/work/queues.py` and `templates/work/queues.html` are the example. The module ends with

    PAGE = Page(
        path="/queues",                 # in Starlette's syntax; ids are `{id:path}`, since they may contain a slash
        nav="queues",                   # the entry of the sidebar to mark
        title="Queues",                 # `read` may return another `title`
        template="work/queues.html",
        read=read,                      # (view) -> dict: the data that all regions share
        regions={"state": None, "table": table},   # (view, data) -> dict: additional data of one region; or None
        actions=(Action("queue.pause", "/queues/{name:path}/pause", do=pause, ask=ask_pause, weight="undo"), ...),
    )

and `pages/__init__.py` lists it. These rules hold:

- Pages call the app's verbs only (`view.app.find(...)`), never a store. `read`, regions and actions run in a thread, so
  they may block. They read no clock: `view.now` is the store's time in microseconds.
- A region is a top-level block of the template with the same name. `{{ region("table") }}` places it. A region is
  rendered once for all watchers with the same role and zone, and sent to their browsers when it changes; so it may
  depend on `view` and nothing else. A region that raises shows an error in its place. Put constant content outside
  the regions.
- Rows that change in place have `data-key="..."` (an id that is unique in the table). A `<tbody data-rows="wait">`
  holds new rows back while the pointer is over the page; `<button class="newer" hidden data-do="newer"><b></b> newer
  runs · show</button>` above the table shows them.
- Parameters come from `view.text`, `view.choice`, `view.number`, which check them; raise `BadParameter` with a
  sentence for any other bad input (400). Raise `NoSuchThing("run", id)` for a missing record (404, with the
  explanation). A `read` that needs another status returns `status`. StoreUnavailable needs no handling.
- Links: `view.url("/runs", queue=name)`, `view.of("run", id)`, `view.change(order="name")` for this page with another
  parameter. Times: `when.at(us)`, `when.ago(us)`, `when.age(us)`, `when.left(us)`, `when.span(us)`; `when.moment(dt)`.
- User values go through Jinja's escaping or `value(x)`; never mark them as safe. Markup made in Python is
  `markupsafe.Markup` with `.format()`, as in `looks/`.
- Templates extend `base.html`, fill `main`, and use the macros of `parts/macros.html` as `p`: `p.head`, `p.explain`,
  `p.card`, `p.act`, `p.button`, `p.menu`, `p.segments`, `p.empty`, `p.notice`, `p.live`, `p.copy`; `icon(name)`,
  `mark(status)`, `status(word, text)`, `charts.*`, `sparks.*`. The content policy forbids style attributes and inline
  scripts.
- An action changes something. GET on its path asks (`ask(view) -> Question`), POST does it (`do(view, form) -> Deed`).
  `weight` says how: `undo` acts at once, `ask` opens a dialog, `type` requires typing `Question.typed`. The frame
  checks role, token and origin, names the person to `app.acting`, and shows the `Deed` as a toast. To refuse, an action
  raises ValueError or any MainspringError. `p.act(view, "queue.pause", "Pause", "pause", params={"name": queue.name})`
  makes its button, which is disabled for people without the role. `key="r"` gives the button a key.
- Rows for the keys `j` and `k` are `<tr tabindex="0" data-key="...">` with an `<a class="name">` to open.
"""

from __future__ import annotations

from mainspring.errors import ConfigurationError, install_command

try:
    import jinja2 as _jinja2
    import starlette as _starlette
except ImportError as error:  # pragma: no cover - the tests have it installed
    raise ConfigurationError(
        f"the dashboard needs {error.name}, which is not installed: {install_command('dashboard')}"
    ) from error

from mainspring.dashboard.asgi import DashboardApp
from mainspring.dashboard.roles import Accounts, Role, hash_password

__all__ = ["Accounts", "DashboardApp", "Role", "hash_password"]

del _jinja2, _starlette
