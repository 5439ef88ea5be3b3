"""mainspring for Django: a store on Django's own connections, settings, models, migrations, tests.

Add `"mainspring.django"` to INSTALLED_APPS and run `manage.py migrate`. `docs/django.md` begins with the lines to copy.
"""
