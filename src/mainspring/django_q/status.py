"""django-q's `Stat` under its usual path: the running clusters, as their worker processes announce them."""

from __future__ import annotations

import socket
from collections import defaultdict
from datetime import datetime
from typing import Any

from django.utils import timezone

from mainspring.core.instants import from_us
from mainspring.django.application import app
from mainspring.django_q.conf import Conf
from mainspring.jobstores.base import NodeInfo

__all__ = ["Stat", "Status"]


class Status:
    """The state of an unknown cluster."""

    def __init__(self, pid: int, cluster_id: Any) -> None:
        self.pid, self.cluster_id, self.host = pid, cluster_id, socket.gethostname()
        self.status: str = Conf.STOPPED
        self.workers: list[int] = []
        self.tob: datetime | None = None
        self.timestamp = timezone.now()
        self.reincarnations = self.monitor = self.pusher = 0  # a worker process runs its pusher and monitor in threads
        self.task_q_size = self.done_q_size = 0
        self.sentinel = 0


class Stat(Status):
    """A running cluster: a sentinel and its worker processes. `cluster_id` is `host:pid` of the sentinel."""

    def __init__(self, cluster_id: str, nodes: list[NodeInfo]) -> None:
        host, _, pid = cluster_id.rpartition(":")
        super().__init__(int(pid) if pid.isdecimal() else nodes[0].pid, cluster_id)
        self.host, self.sentinel = host or nodes[0].host, self.pid
        self.workers = [node.pid for node in nodes]
        self.tob = from_us(min(node.started_at for node in nodes))
        self.timestamp = from_us(max(node.beat_at for node in nodes))
        self.task_q_size = sum(node.busy for node in nodes)
        stopping = all(node.state != "running" for node in nodes)
        self.status = Conf.STOPPING if stopping else Conf.WORKING if self.task_q_size else Conf.IDLE

    def uptime(self) -> float:
        """Return the seconds since the cluster started."""
        assert self.tob is not None
        return float((timezone.now() - self.tob).total_seconds())

    def empty_queues(self) -> bool:
        """Return True if the cluster executes nothing."""
        return self.task_q_size == 0

    @staticmethod
    def get(pid: int, cluster_id: Any, broker: Any = None) -> Status:
        """Return a cluster by id, or by its sentinel's pid on this machine; an unknown one counts as stopped."""
        wanted = (str(cluster_id), f"{socket.gethostname()}:{pid}")
        return next((stat for stat in Stat.get_all() if stat.cluster_id in wanted), Status(pid, cluster_id))

    @staticmethod
    def get_all(broker: Any = None) -> list[Stat]:
        """Return all running clusters of the project."""
        clusters: dict[str, list[NodeInfo]] = defaultdict(list)
        for node in app.nodes():
            if node.state != "silent":
                clusters[node.cluster or f"{node.host}:{node.pid}"].append(node)
        return [Stat(cluster_id, nodes) for cluster_id, nodes in sorted(clusters.items())]
