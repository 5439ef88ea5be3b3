"""Apps for the tests of security."""

from tests.app.conftest import _no_settings, app, make_app, url

__all__ = ["_no_settings", "app", "make_app", "url"]
