"""Answers as JSON, without the copies and checks that are for what others send."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fastapi import Response

from network_provisioner.api.problems import error_body
from network_provisioner.base.model import RequestAnswer, Transit


def transit(transit: Transit, status: int = 200) -> Response:
    """One transit."""
    return answer(transit.as_dict(), status)


def transits(many: Iterable[Transit]) -> Response:
    """Many."""
    return answer([transit.as_dict() for transit in many])


def request_answers(answered: Iterable[RequestAnswer]) -> Response:
    """What became of several requests."""
    return answer({"answers": [_answered(item) for item in answered]})


def answer(content: Any, status: int = 200) -> Response:
    """Any JSON; raises ValueError for numbers that JSON does not have."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _answered(item: RequestAnswer) -> dict[str, Any]:
    return {
        "transit": None if item.transit is None else item.transit.as_dict(),
        "error": None if item.error is None else error_body(item.error.code, str(item.error)),
        "service": asdict(item.service),
    }
