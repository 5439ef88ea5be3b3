"""django-q's verbs by their usual path."""

from mainspring.django.tasks import *  # noqa: F403
from mainspring.django.tasks import __all__  # noqa: F401
