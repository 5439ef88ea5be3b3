"""Start three members of etcd, for the tests of a lost leader."""

from __future__ import annotations

import socket
import time

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.etcd import EtcdClient
from tests.servers import HOST, Etcd, ServerFailed, Trio, free_port

SECONDS = 90.0


class EtcdMember(Etcd):
    """One of several; it answers as soon as it listens, since it is healthy only with a majority."""

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True


class EtcdTrio(Trio):
    """Three members."""

    members: list[EtcdMember]

    def __init__(self) -> None:
        self.members = [EtcdMember() for _ in range(3)]
        for member in self.members:
            member.peer_port = free_port()
        peers = [f"http://{HOST}:{member.peer_port}" for member in self.members]
        everyone = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        for number, member in enumerate(self.members):
            own = ["--name", f"m{number}", "--initial-advertise-peer-urls", peers[number]]
            member.options = [*own, "--initial-cluster", everyone]

    @property
    def endpoints(self) -> list[str]:
        """Where they listen."""
        return [member.endpoint for member in self.members]

    def leader(self) -> EtcdMember:
        """Return the member that leads; wait until there is one."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            for member in self.members:
                client = EtcdClient(port=member.port)
                try:
                    status = client.call("maintenance/status", {})
                except StoreUnavailable:
                    continue
                finally:
                    client.close()
                if status.get("leader") == status["header"]["member_id"]:
                    return member
            time.sleep(0.05)
        raise ServerFailed("etcd has no leader")
