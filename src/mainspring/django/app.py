"""The project's app, for `mainspring worker mainspring.django.app:app` and for your own modules.

Worker processes import this module before anything of Django's, so it sets Django up if nobody has.
"""

from __future__ import annotations

import django
from django.apps import apps

from mainspring.django.application import app

__all__ = ["app"]

if not apps.ready and not apps.loading:
    django.setup()
