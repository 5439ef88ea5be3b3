"""The settings under which django-q2's own tests run on the drop-in: theirs, with the database as the broker."""

from __future__ import annotations

import os

from tests.django.project.settings import MIDDLEWARE, TEMPLATES, database

SECRET_KEY = "a key that only the tests know, of some length"
DEBUG = True
USE_TZ = True
TIME_ZONE = "Europe/Amsterdam"
STATIC_URL = "static/"
ROOT_URLCONF = "tests.django.dropin.urls"
DEFAULT = database(os.environ["DJANGO_DATABASE"])
# A cluster that a test starts has the same database, although it knows nothing of tests.
DATABASES = {"default": {**DEFAULT, "TEST": {"NAME": DEFAULT["NAME"]}}}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "mainspring.django_q",
]
Q_CLUSTER = {"name": "django_q_test", "cpu_affinity": 1, "testing": True, "log_level": "DEBUG", "orm": "default"}

__all__ = ["MIDDLEWARE", "TEMPLATES"]
