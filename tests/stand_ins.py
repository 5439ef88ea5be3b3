"""Servers that speak the protocol of a database which cannot be had here; they prove nothing about its speed.

`SecantusDB` speaks MongoDB's protocol, and comes from PyPI. `Reqlite` speaks RethinkDB's, and comes from npm.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import sys
from importlib.metadata import version
from pathlib import Path

from tests.servers import HOST, MissingServer, Server

__all__ = ["Reqlite", "SecantusDB"]

ROOT = Path(__file__).parents[1]
REQLITE = ROOT / ".tools" / "reqlite" / "node_modules"
"""Where run.py installs reqlite."""


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
        return _listens(self.port)


class Reqlite(Server):
    """A stand-in for RethinkDB, in memory."""

    name = "reqlite"
    program = "node"

    @classmethod
    def find(cls) -> Path:
        """Return Node.js if reqlite is installed, or raise `MissingServer`."""
        found = shutil.which(cls.program)
        if found is None or not (REQLITE / "reqlite").is_dir():
            raise MissingServer(cls.name, "reqlite", "npm install --prefix .tools/reqlite reqlite")
        return Path(found)

    @classmethod
    def find_version(cls) -> str:
        """Return the version of the package."""
        return str(json.loads((REQLITE / "reqlite" / "package.json").read_text())["version"])

    @property
    def url(self) -> str:
        """The address of the database `mainspring`."""
        return f"rethinkdb://{HOST}:{self.port}/mainspring"

    def _command(self) -> list[str | Path]:
        os.environ["NODE_PATH"] = str(REQLITE)
        return [self.binary, ROOT / "tests" / "reqlite.js", str(self.port)]

    def _answers(self) -> bool:
        return _listens(self.port)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False
