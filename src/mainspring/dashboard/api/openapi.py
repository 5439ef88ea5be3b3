"""The OpenAPI 3.1 document, generated from the table of endpoints."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from mainspring import __version__
from mainspring.dashboard.api.endpoints import ENDPOINTS, ROOT, Endpoint
from mainspring.dashboard.api.schemas import SCHEMAS, ref

__all__ = ["openapi"]

_NAMES: Final = re.compile(r"\{(\w+)\}")
_PROBLEMS: Final = {
    "400": "What was asked for makes no sense; `error` says why.",
    "401": "Nobody is logged in.",
    "403": "The role does not allow it, or the request comes from another site.",
    "404": "There is no such thing.",
    "409": "It was refused, since something has changed meanwhile.",
    "503": "The store does not answer.",
}


@cache
def openapi() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(f"{ROOT}{endpoint.path}", {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mainspring",
            "version": __version__,
            "description": "Runs, jobs, queues and nodes of an app. Bodies are JSON. Secrets are hidden everywhere.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "session": {"type": "apiKey", "in": "cookie", "name": "mainspring_session"},
            },
        },
        "security": [{"password": []}, {"session": []}, {}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    names = _NAMES.findall(endpoint.path)
    given = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": f"The {name}."}
        for name in names
    ]
    given += [
        {"name": each.name, "in": "query", "required": False, "schema": {"type": each.kind}, "description": each.words}
        for each in endpoint.query
    ]
    content = {"schema": ref(endpoint.answer)} if endpoint.answer else {"schema": {"type": "string"}}
    problem = {"application/json": {"schema": ref("Problem")}}
    made: dict[str, Any] = {
        "summary": endpoint.words,
        "operationId": _operation_id(endpoint),
        "parameters": given,
        "responses": {
            "200": {"description": endpoint.words, "content": {endpoint.media: content}},
            **{status: {"description": words, "content": problem} for status, words in _PROBLEMS.items()},
        },
        "x-role": str(endpoint.role),
    }
    if endpoint.body:
        needed = "required" in SCHEMAS[endpoint.body]
        made["requestBody"] = {"required": needed, "content": {"application/json": {"schema": ref(endpoint.body)}}}
    return made


def _operation_id(endpoint: Endpoint) -> str:
    words = re.sub(r"[{}]", "", endpoint.path).replace(".", "/").strip("/").split("/")
    return "_".join([endpoint.method.lower(), *words])
