"""Visitors: their sessions in cookies, the login and its limit, and messages for the next page only."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from mainspring.dashboard.roles import Accounts, Identity, Role
from mainspring.dashboard.web.sessions import SESSION_SECONDS, LoginLimit, Session, SessionKey

__all__ = ["Visitors", "own_path", "root_of"]

SESSION: Final = "mainspring_session"
FLASH: Final = "mainspring_flash"
ZONE: Final = "mainspring_zone"
THEME: Final = "mainspring_theme"
FLASH_SECONDS: Final = 60
_PATH: Final = re.compile(r"/(?![/\\])[^\\\r\n]*")


def own_path(path: str) -> str:
    """Return a path of ours to go to, or the first page if it leads elsewhere."""
    return path if len(path) <= 2000 and _PATH.fullmatch(path) else "/"


class Visitors:
    """A registry that identifies visitors by their cookies. Without accounts, every visitor may operate."""

    def __init__(self, accounts: Accounts | None, key: bytes | None) -> None:
        self.accounts, self.sessions, self.limit = accounts, SessionKey(key), LoginLimit()
        self.placeholder = f"token-{secrets.token_hex(16)}"
        """The placeholder for the form token in shared renderings; it cannot be guessed."""

    def session(self, request: Request) -> Session | None:
        """Return the session of a browser, if it has one."""
        return self.sessions.read(request.cookies.get(SESSION, ""))

    def who(self, request: Request) -> Identity | None:
        """Return the visitor with the current role; None if a login is needed."""
        if self.accounts is None:
            return Identity("", Role.OPERATE)
        session = self.session(request)
        role = None if session is None or not session.name else self.accounts.role_of(session.name)
        return None if session is None or role is None else Identity(session.name, role)

    def who_by_password(self, request: Request) -> Identity | None:
        """Return the visitor by a password in the request itself, as scripts send it."""
        kind, _, coded = request.headers.get("authorization", "").partition(" ")
        if self.accounts is None or kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(coded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        return self.check(request, name, password)

    def check(self, request: Request, name: str, password: str) -> Identity | None:
        """Return the identity with this name and password; count a failure."""
        whose = _whose(request, name)
        if self.accounts is None or self.limit.wait(*whose):
            return None
        found = self.accounts.check(name, password)
        if found is None:
            self.limit.fail(*whose)
        else:
            self.limit.succeed(*whose)
        return found

    def waits(self, request: Request, name: str) -> float:
        """Return the seconds until the next login try."""
        return self.limit.wait(*_whose(request, name))

    def is_token(self, request: Request, token: str) -> bool:
        """Return True if a form comes from a page that we sent to this browser."""
        session = self.session(request)
        return session is not None and self.sessions.is_token(session, token)

    def give(self, request: Request, response: Response, session: Session) -> None:
        """Set a browser's session cookie."""
        response.set_cookie(
            SESSION,
            self.sessions.write(session),
            max_age=SESSION_SECONDS,
            path=root_of(request) or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )

    def zone(self, request: Request) -> str:
        """Return the name of the visitor's time zone; empty for the app's."""
        return unquote(request.cookies.get(ZONE, ""))[:64]  # the script writes Asia%2FTokyo

    def theme(self, request: Request) -> str:
        """Return light or dark, or empty for the system's."""
        found = request.cookies.get(THEME, "")
        return found if found in ("light", "dark") else ""

    def remember(self, request: Request, response: Response, said: dict[str, Any]) -> None:
        """Keep a message for the next page."""
        text = self.sessions.sign(json.dumps(said))
        path = root_of(request) or "/"
        response.set_cookie(FLASH, text, max_age=FLASH_SECONDS, path=path, httponly=True, samesite="strict")

    def remembered(self, request: Request) -> dict[str, Any] | None:
        """Return the message that the last page left."""
        text = self.sessions.unsign(request.cookies.get(FLASH, ""))
        return None if text is None else json.loads(text)

    def forget(self, request: Request, response: Response) -> None:
        """Drop the message that was shown."""
        response.delete_cookie(FLASH, path=root_of(request) or "/")


def _whose(request: Request, name: str) -> tuple[str, str]:
    return f"address {request.client.host if request.client else ''}", f"account {name}"


def root_of(request: Request) -> str:
    """Return the path at which the dashboard is mounted; empty for the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")
