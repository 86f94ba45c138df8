"""Answers as JSON, without the copies and checks that are for what others send."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from fastapi import Response

from network_provisioner.model import Transit

_FIELDS = tuple(f.name for f in fields(Transit))


def transit(found: Transit, status: int = 200) -> Response:
    """One transit."""
    return answer(_plain(found), status)


def transits(found: Iterable[Transit]) -> Response:
    """Many."""
    return answer([_plain(one) for one in found])


def answer(content: Any, status: int = 200) -> Response:
    """Any JSON; raises ValueError for numbers that JSON does not have."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _plain(found: Transit) -> dict[str, Any]:
    return {name: getattr(found, name) for name in _FIELDS}
