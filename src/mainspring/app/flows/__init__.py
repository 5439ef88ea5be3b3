"""Runs that come after other runs: flows, chains, gathering, signals."""
