"""The pages of the example."""

from django.contrib import admin
from django.urls import include, path

from shop.views import make_order, show_order

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mainspring/", include("mainspring.django.urls")),
    path("orders/", make_order),
    path("orders/<int:pk>/", show_order),
]
