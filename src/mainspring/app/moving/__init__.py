"""Move jobs and runs from one store to another while nodes work on both."""
