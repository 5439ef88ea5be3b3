"""The pages about work: runs, one run, forms, errors, tasks."""
