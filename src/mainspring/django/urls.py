"""The dashboard in a project: `path("mainspring/", include("mainspring.django.urls"))`.

Staff who may view tasks can look, those who may change tasks can act, those who may delete tasks can delete and stop.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, re_path, reverse
from django.views.decorators.csrf import csrf_exempt

from mainspring.django.application import app
from mainspring.django.models import Task
from mainspring.errors import install_command

__all__ = ["dashboard", "urlpatterns"]

WHO = "HTTP_X_MAINSPRING_WHO"
"""The header that names the visitor to the dashboard; it overwrites a client's header of this name."""


# The dashboard's forms have their own tokens, and it refuses requests from other sites.
@csrf_exempt
def dashboard(request: HttpRequest, path: str) -> HttpResponse:
    """Answer a request to the dashboard."""
    user = request.user
    if not (user.is_active and user.is_staff):
        return redirect_to_login(request.get_full_path(), _login_url())
    request.get_host()  # raises for a host outside ALLOWED_HOSTS
    environ = {
        **{name: value for name, value in request.META.items() if isinstance(value, str)},
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": request.path.removesuffix(f"/{path}") if path else request.path.rstrip("/"),
        "PATH_INFO": f"/{path}".encode().decode("latin-1"),
        "wsgi.url_scheme": request.scheme,
        "wsgi.input": BytesIO(request.body),
        "CONTENT_LENGTH": str(len(request.body)),
        WHO: json.dumps([user.get_username(), _role_of(user)]),
    }
    answer = HttpResponse()

    def start(status: str, headers: list[tuple[str, str]]) -> None:
        answer.status_code = int(status.partition(" ")[0])
        for name, value in headers:
            if name.lower() == "set-cookie":
                answer.cookies.load(value)
            elif name.lower() != "content-length":
                answer[name] = value

    answer.content = b"".join(_mounted()(environ, start))
    return answer


def _role_of(user: Any) -> str:
    """Return a user's role, from the permissions on tasks; raise PermissionDenied without any."""
    label = Task._meta.app_label
    for right, role in (("delete", "admin"), ("change", "operate"), ("view", "view")):
        if user.has_perm(f"{label}.{right}_task"):
            return role
    raise PermissionDenied


def _login_url() -> str:
    try:
        return str(reverse("admin:login"))
    except NoReverseMatch:
        return str(settings.LOGIN_URL)


@cache
def _mounted() -> Any:
    key = hashlib.sha256(b"mainspring.dashboard\0" + str(settings.SECRET_KEY).encode()).digest()
    try:
        return app.wsgi(identify=_who, hosts=["*"], key=key)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(f"the dashboard needs more: {install_command('dashboard')} ({error})") from error


def _who(scope: Any) -> tuple[str, str]:
    headers = dict(scope["headers"])
    name, role = json.loads(headers[WHO[5:].replace("_", "-").lower().encode()])
    return name, role


urlpatterns = [re_path(r"^(?P<path>.*)$", dashboard, name="mainspring-dashboard")]
