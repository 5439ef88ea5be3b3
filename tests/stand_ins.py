"""Servers that speak the protocol of a database which cannot be had here; they prove nothing about its speed.

`SecantusDB` speaks MongoDB's protocol. It comes from PyPI.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from importlib.metadata import version
from pathlib import Path

from tests.servers import HOST, MissingServer, Server

__all__ = ["SecantusDB"]


class SecantusDB(Server):
    """A stand-in for MongoDB, which calls itself a replica set of one member."""

    name = "SecantusDB"
    program = "secantusd-py"

    @classmethod
    def find(cls) -> Path:
        """Return the program of this environment, or raise `MissingServer`."""
        found = Path(sys.executable).parent / cls.program
        if importlib.util.find_spec("secantus") is None and not found.exists():
            raise MissingServer(cls.name, cls.program, "pip install secantusdb")
        return found

    @classmethod
    def find_version(cls) -> str:
        """Return the version of the package."""
        return version("secantusdb")

    @property
    def url(self) -> str:
        """The address of the database `mainspring`."""
        return f"mongodb://{HOST}:{self.port}/mainspring"

    def _command(self) -> list[str | Path]:
        return [self.binary, "--host", HOST, "--port", str(self.port), "--storage-path", self.directory / "data"]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1):
                return True
        except OSError:
            return False
