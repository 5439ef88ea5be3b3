"""A store in Redis or Valkey."""

from mainspring.jobstores.redis.store import RedisJobStore, pin

__all__ = ["RedisJobStore", "pin"]
