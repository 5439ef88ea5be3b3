"""Jobs in ZooKeeper; another store keeps their runs."""

from mainspring.jobstores.zookeeper.store import ZooKeeperJobStore

__all__ = ["ZooKeeperJobStore"]
