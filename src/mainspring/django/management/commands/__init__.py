"""django-q's commands, and a command that takes over its data."""
