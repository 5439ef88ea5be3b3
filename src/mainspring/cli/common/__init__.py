"""Helpers that all verbs use: which app they act on, how they fail, how they print."""
