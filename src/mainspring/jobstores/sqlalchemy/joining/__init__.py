"""Enqueue inside the user's transaction, for a store in the same database or elsewhere."""
