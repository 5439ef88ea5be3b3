"""Jobs and runs in this process."""

from mainspring.jobstores.memory.store import MemoryJobStore

__all__ = ["MemoryJobStore"]
