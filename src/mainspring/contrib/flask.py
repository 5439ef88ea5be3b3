"""mainspring in a Flask app: `jobs = FlaskMainspring()`, then `jobs.init_app(flask_app)`. It needs the extra `flask`.

Tasks run inside the app's context, so `current_app` and the extensions work. `app.config` holds the settings:

MAINSPRING_URL          the store; by default the URL that the app was made with
MAINSPRING_SECRET_KEY   the signing key, or a list of keys
MAINSPRING_DASHBOARD    the path of the dashboard, "/jobs" for example; by default there is none
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mainspring.app import Mainspring
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.errors import ConfigurationError, install_command
from mainspring.executors.current_run import CurrentRun
from mainspring.jobstores.base import JobStore

try:
    import flask
except ImportError as error:
    raise ConfigurationError(
        f"the Flask extension needs {error.name}, which is not installed: {install_command('flask')}"
    ) from error

__all__ = ["FlaskMainspring"]

NAME: Final = "mainspring"
"""The extension's name in `flask_app.extensions`."""


class FlaskMainspring(Mainspring):
    """A Mainspring that reads its settings from a Flask app and executes tasks in that app's context."""

    def __init__(
        self, url: str | JobStore | None = None, *, flask_app: flask.Flask | None = None, **options: Any
    ) -> None:
        super().__init__(url, **options)
        self._options = options
        self._flask_app: flask.Flask | None = None
        self.middleware(self._in_context)
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: flask.Flask, **dashboard: Any) -> None:
        """Read the settings of a Flask app. `dashboard` holds the options of `app.wsgi()`.

        If a factory makes several apps, as tests do, tasks run in the latest one.
        """
        config, given = flask_app.config, self._options
        url, keys = config.get("MAINSPRING_URL"), config.get("MAINSPRING_SECRET_KEY")
        if self.running:
            raise ConfigurationError("the app is started already; call init_app before start")
        if url is not None or keys is not None:
            self._app_store.reconfigure(
                self.url if url is None else url,
                self.name,
                given.get("secret_key") if keys is None else keys,
                given.get("allow_pickle", False),
                given.get("store_options") or {},
                given.get("timezone"),
            )
            self.url = self._app_store.url
        self._flask_app = flask_app
        flask_app.extensions[NAME] = self
        path = config.get("MAINSPRING_DASHBOARD")
        if path:
            self._mount(flask_app, str(path), dashboard)

    def _mount(self, flask_app: flask.Flask, path: str, options: dict[str, Any]) -> None:
        from werkzeug.middleware.dispatcher import DispatcherMiddleware  # Flask depends on it

        mounted = DispatcherMiddleware(flask_app.wsgi_app, {"/" + path.strip("/"): self.wsgi(**options)})
        flask_app.wsgi_app = mounted  # type: ignore[method-assign]

    def _in_context(self, run: CurrentRun | None, call_next: Callable[[], Any]) -> Any:
        if self._flask_app is None:
            raise ConfigurationError(
                "no Flask app was given to this one: the module that workers import must call init_app, as your "
                "factory does"
            )
        if iscoroutinefunction_partial(call_next):
            return self._in_context_async(self._flask_app, call_next)
        with self._flask_app.app_context():
            return call_next()

    async def _in_context_async(self, flask_app: flask.Flask, call_next: Callable[[], Any]) -> Any:
        with flask_app.app_context():
            return await call_next()
