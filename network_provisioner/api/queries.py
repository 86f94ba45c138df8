"""Queries: what is no list is given once, for whoever gives it twice means one of the two."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import Request

from network_provisioner.base.errors import InputError


async def given_once(request: Request) -> None:
    """A dependency of every route. Raises InputError for a parameter that is given more than once
    and is no list by the service's own description."""
    given = Counter(name for name, _ in request.query_params.multi_items())
    twice = [name for name, times in given.items() if times > 1]
    if not twice:
        return
    described = request.app.openapi()["paths"]
    verbs = described.get(request.scope["route"].path_format, {})  # pages are not described
    operation: dict[str, Any] = verbs.get(request.method.lower(), {})
    for one in operation.get("parameters", ()):
        name = one["name"]
        if name in twice and one["in"] == "query" and not _is_list(one["schema"]):
            raise InputError(f"query: {name!r} is given {given[name]} times, expected once")


def _is_list(schema: dict[str, Any]) -> bool:
    return any(one.get("type") == "array" for one in (schema, *schema.get("anyOf", ())))
