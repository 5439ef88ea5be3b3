"""The SQL store on Django's connections: `DjangoStore`."""

from mainspring.django.store.store import DjangoStore

__all__ = ["DjangoStore"]
