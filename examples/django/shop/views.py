"""Two views: one stores an order with its task, the other shows how far it is."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt

from shop.models import Order
from shop.tasks import send_receipt


@csrf_exempt
def make_order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():  # the task is there if and only if the order is
        order = Order.objects.create(text=request.GET["text"])
        result: Any = send_receipt.enqueue(order.pk)
    return JsonResponse({"order": order.pk, "task": result.id})


def show_order(request: HttpRequest, pk: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=pk)
    return JsonResponse({"text": order.text, "receipt": order.receipt})
