"""mainspring in place of django-q2: replace `"django_q"` by `"mainspring.django_q"` in INSTALLED_APPS.

It is `mainspring.django` under django-q's label, tables and migrations. `docs/coming-from/django-q.md` lists the steps.
"""
