"""django-q2's migrations as one, and the step from its tables to ours."""
