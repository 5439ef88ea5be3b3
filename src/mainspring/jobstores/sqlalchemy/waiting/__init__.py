"""Runs that wait in SQL: behind other runs, and for a slot of a gate."""
