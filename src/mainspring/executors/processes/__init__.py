"""Runs in child processes."""
