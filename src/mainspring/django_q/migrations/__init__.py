"""django-q2's migrations, squashed, and the step from its tables to ours."""
