"""django-q's brokers by their usual path."""

from mainspring.tasks import Broker, get_broker

__all__ = ["Broker", "get_broker"]
