"""django-q's broker under its usual path: here one class serves all stores."""

from mainspring.django_q.brokers import Broker as Redis

__all__ = ["Redis"]
