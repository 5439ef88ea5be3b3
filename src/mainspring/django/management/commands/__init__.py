"""django-q's commands, and one that takes over its data."""
