"""Start three servers of ZooKeeper that elect a leader, or one that speaks TLS."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import ClassVar

from tests.servers import HOST, ServerFailed, Trio, ZooKeeper, free_port

SECONDS = 90.0


class Member(ZooKeeper):
    """One of several."""

    number = 0

    def _preparation(self) -> list[str | Path]:
        (self.directory / "myid").write_text(str(self.number))
        return []

    def _answers(self) -> bool:
        return True  # not before it has a majority: see `ZooKeeperTrio.leader`

    def mode(self) -> str:
        """Return `leader` or `follower`; empty if it does not serve."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as wire:
                wire.sendall(b"srvr")
                said = b"".join(iter(lambda: wire.recv(4096), b"")).decode()
        except OSError:
            return ""
        return said.partition("Mode: ")[2].split("\n")[0]


class ZooKeeperTrio(Trio):
    """Three servers."""

    members: list[Member]

    def __init__(self) -> None:
        self.members = [Member() for _ in range(3)]
        places = [f"server.{n}={HOST}:{free_port()}:{free_port()}" for n in range(1, 4)]
        for number, member in enumerate(self.members, 1):
            member.number = number
            member.settings = ["initLimit=50", "syncLimit=25", *places]

    @property
    def hosts(self) -> str:
        """Where they listen."""
        return ",".join(f"{HOST}:{member.port}" for member in self.members)

    def leader(self) -> Member:
        """Return the server that leads; wait until there is one, and another that follows it."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            modes = {member.mode(): member for member in self.members if member.running}
            if {"leader", "follower"} <= modes.keys():
                return modes["leader"]
            time.sleep(0.02)
        raise ServerFailed("ZooKeeper has no leader")


class SecureZooKeeper(ZooKeeper):
    """A server that speaks TLS only, and asks its clients for a certificate: `ca.pem`, `cert.pem`, `key.pem`."""

    port_setting: ClassVar[str] = "secureClientPort"

    def _preparation(self) -> list[str | Path]:
        key, cert, both = (self.directory / f"{name}.pem" for name in ("key", "cert", "both"))
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        place: list[str | Path] = ["-keyout", key, "-out", cert, "-days", "2"]
        subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=IP:{HOST}"]
        subprocess.run([*words, *place, *subject], check=True, capture_output=True)
        both.write_text(key.read_text() + cert.read_text())
        (self.directory / "ca.pem").write_text(cert.read_text())
        self.settings = [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={both}",
            f"ssl.trustStore.location={self.directory / 'ca.pem'}",
            "ssl.clientAuth=need",
            "ssl.clientHostnameVerification=false",
        ]
        return []

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=self.directory / "ca.pem")
        context.load_cert_chain(self.directory / "cert.pem", self.directory / "key.pem")
        try:
            with (
                socket.create_connection((HOST, self.port), timeout=1) as wire,
                context.wrap_socket(wire, server_hostname=HOST) as safe,
            ):
                safe.sendall(b"srvr")
                return b"Zookeeper version" in safe.recv(200)
        except OSError:
            return False
