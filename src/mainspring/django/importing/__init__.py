"""Take over from django-q: its settings, its queued and finished tasks. Nothing that a pickle names is imported."""
