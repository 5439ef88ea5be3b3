"""The cluster: worker processes, and a sentinel process that supervises them."""

from __future__ import annotations

from mainspring.cluster.cluster import Cluster
from mainspring.cluster.settings import ClusterStat, Settings, WorkerStat

__all__ = ["Cluster", "ClusterStat", "Settings", "WorkerStat"]
