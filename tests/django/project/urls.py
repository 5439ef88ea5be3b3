"""The pages of the project, and the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from mainspring.django.app import app
from tests.django.project.shop.models import Order
from tests.django.project.shop.tasks import price


async def order(request: HttpRequest) -> Any:
    """Save an order and enqueue its price, in async code."""
    made = await Order.objects.acreate(text=request.POST["text"])
    handle = await app.aio.enqueue(price, made, 5)
    return HttpResponse(handle.id)


urlpatterns = [
    path("order/", order),
    path("admin/", admin.site.urls),
    path("mainspring/", include("mainspring.django.urls")),
]
