"""Answers as JSON, without the copies and checks that are for what others send."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fastapi import Response

from network_provisioner.api.problems import error_body
from network_provisioner.base.model import RequestAnswer, Transit


def transit(found: Transit, status: int = 200) -> Response:
    """One transit."""
    return answer(found.as_dict(), status)


def transits(found: Iterable[Transit]) -> Response:
    """Many."""
    return answer([one.as_dict() for one in found])


def asked(found: Iterable[RequestAnswer]) -> Response:
    """What became of several requests."""
    return answer({"answers": [_answered(one) for one in found]})


def answer(content: Any, status: int = 200) -> Response:
    """Any JSON; raises ValueError for numbers that JSON does not have."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _answered(one: RequestAnswer) -> dict[str, Any]:
    return {
        "transit": None if one.transit is None else one.transit.as_dict(),
        "error": None if one.error is None else error_body(one.error.code, str(one.error)),
        "service": asdict(one.service),
    }
