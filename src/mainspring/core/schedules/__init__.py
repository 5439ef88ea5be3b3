"""Schedules as people look at them: what will fire, and what differs from the code. Pure."""
