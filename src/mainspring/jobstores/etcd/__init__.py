"""Jobs in etcd; another store keeps their runs."""

from mainspring.jobstores.etcd.client import EtcdClient
from mainspring.jobstores.etcd.store import EtcdJobStore

__all__ = ["EtcdClient", "EtcdJobStore"]
