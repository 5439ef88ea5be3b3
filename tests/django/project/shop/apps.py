"""The shop as an app."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.django.project.shop"
    label = "shop"
