"""The pages about jobs: the list, one job, the form, and the actions on a job."""
