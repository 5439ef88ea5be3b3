"""Explanations of an app: why something has or has not run, the health of schedules, what people did."""
