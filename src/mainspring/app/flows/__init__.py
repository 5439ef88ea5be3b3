"""Runs that come after other runs: flows, chains, gathered calls, signals."""
