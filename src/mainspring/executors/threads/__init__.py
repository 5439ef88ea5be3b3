"""Runs in threads."""
