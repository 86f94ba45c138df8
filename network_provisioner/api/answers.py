"""Answers as JSON, without the copies and checks that are for what others send."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from fastapi import Response

from network_provisioner.api.problems import error_body
from network_provisioner.base.model import RequestAnswer, Transit

_FIELDS = tuple(f.name for f in fields(Transit))


def transit(found: Transit, status: int = 200) -> Response:
    """One transit."""
    return answer(_plain(found), status)


def transits(found: Iterable[Transit]) -> Response:
    """Many."""
    return answer([_plain(one) for one in found])


def asked(found: Iterable[RequestAnswer]) -> Response:
    """What became of several requests."""
    return answer({"answers": [_answered(one) for one in found]})


def answer(content: Any, status: int = 200) -> Response:
    """Any JSON; raises ValueError for numbers that JSON does not have."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _plain(found: Transit) -> dict[str, Any]:
    return {name: getattr(found, name) for name in _FIELDS}


def _answered(one: RequestAnswer) -> dict[str, Any]:
    return {
        "transit": None if one.transit is None else _plain(one.transit),
        "error": None if one.error is None else error_body(one.error.code, str(one.error)),
        "service": asdict(one.service),
    }
