"""Waiting for runs to end."""
