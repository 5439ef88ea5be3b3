"""Explain the system in words: why a run has or has not started, how a job fares, what it will do next. Pure."""
