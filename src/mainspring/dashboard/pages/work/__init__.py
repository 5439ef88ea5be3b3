"""The pages about work: runs, flows, queues and their limits, errors, tasks, and bulk actions."""
