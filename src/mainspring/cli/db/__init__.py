"""`mainspring db`: check what a store keeps, migrate it, prune it."""

from mainspring.cli.db.command import db

__all__ = ["db"]
