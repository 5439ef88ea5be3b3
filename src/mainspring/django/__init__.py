"""mainspring for Django: a store on Django's connections, and settings, models, migrations and test tools.

Add `"mainspring.django"` to INSTALLED_APPS and run `manage.py migrate`. `docs/django.md` begins with lines to copy.
"""
