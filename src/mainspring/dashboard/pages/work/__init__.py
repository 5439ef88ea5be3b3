"""The pages about work: runs, flows, queues and their limits, errors, tasks, and acts on many runs."""
