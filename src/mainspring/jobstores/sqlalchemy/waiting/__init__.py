"""Waiting runs in SQL: those that come after other runs, and those that wait for a slot of a gate."""
