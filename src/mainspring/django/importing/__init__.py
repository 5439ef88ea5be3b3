"""Take over the queued and finished tasks of django-q. Nothing that a pickle names is imported or called."""
