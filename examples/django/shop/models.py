"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    text = models.CharField(max_length=100)
    receipt = models.CharField(max_length=100, blank=True)

    def __str__(self) -> str:
        return self.text
