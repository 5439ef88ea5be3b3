"""The SQL store on Django's own connections: `DjangoStore`."""

from mainspring.django.store.store import DjangoStore

__all__ = ["DjangoStore"]
