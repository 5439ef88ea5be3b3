"""django-q's signals under their usual path."""

from mainspring.django.signals import post_execute, post_execute_in_worker, post_spawn, pre_enqueue, pre_execute

__all__ = ["post_execute", "post_execute_in_worker", "post_spawn", "pre_enqueue", "pre_execute"]
