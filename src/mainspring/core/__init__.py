"""The pure core: jobs, runs, plans, policies. It reads no clock, starts no thread and does no I/O."""
