"""django-q's models under their usual path."""

from mainspring.django.models import Failure, OrmQ, Schedule, Success, Task

__all__ = ["Failure", "OrmQ", "Schedule", "Success", "Task"]
