"""A store in the memory of this process."""

from mainspring.jobstores.memory.store import MemoryJobStore

__all__ = ["MemoryJobStore"]
