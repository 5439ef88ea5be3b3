"""Jobs in ZooKeeper."""

from mainspring.jobstores.zookeeper.store import ZooKeeperJobStore

__all__ = ["ZooKeeperJobStore"]
