"""Runs that take turns on one loop."""
