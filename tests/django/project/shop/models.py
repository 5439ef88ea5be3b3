"""What a shop has."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order, and what its tasks have made of it."""

    text = models.CharField(max_length=100)
    total = models.IntegerField(default=0)

    class Meta:
        app_label = "shop"
