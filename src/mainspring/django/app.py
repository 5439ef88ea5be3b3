"""The project's app, for `mainspring worker mainspring.django.app:app` and for your own modules.

Worker processes import this module before any Django code, so it sets Django up if that has not happened.
"""

from __future__ import annotations

import django
from django.apps import apps

from mainspring.django.application import app

__all__ = ["app"]

if not apps.ready and not apps.loading:
    django.setup()
