"""mainspring in the place of django-q2: put `"mainspring.django_q"` where `"django_q"` is in INSTALLED_APPS.

It is `mainspring.django` under django-q's label, tables and migrations. `docs/from-django-q.md` has the steps.
"""
