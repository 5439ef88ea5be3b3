"""The work as an app."""

from __future__ import annotations

from django.apps import AppConfig


class WorkConfig(AppConfig):
    name = "tests.django.dropin.work"
    label = "work"
