"""The pages about jobs: the list, one job, the form, and what can be done to a job."""
