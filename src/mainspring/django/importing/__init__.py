"""Take over django-q's settings and its queued and finished tasks, without importing anything that a pickle names."""
