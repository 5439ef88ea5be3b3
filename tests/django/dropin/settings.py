"""A project that has used django-q2: TAKEN_BY chooses which of the two apps has its place."""

from __future__ import annotations

import os

from tests.django.project.settings import MIDDLEWARE, TEMPLATES, database

SECRET_KEY = "a key that only the tests know, of some length"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
STATIC_URL = "static/"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.django.dropin.urls"
DATABASES = {"default": database(os.environ["DJANGO_DATABASE"])}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    os.environ.get("TAKEN_BY", "mainspring.django_q"),
    "tests.django.dropin.work",
]
Q_CLUSTER = {"name": "work", "workers": 1, "timeout": 60, "retry": 120, "orm": "default", "save_limit": 250}

__all__ = ["MIDDLEWARE", "TEMPLATES"]
