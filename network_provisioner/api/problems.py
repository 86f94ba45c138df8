"""Errors over HTTP: one shape, ``{"error": {"code", "message"}}``, and codes that stay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from network_provisioner.base.errors import AdonError, printable

log = logging.getLogger(__name__)

STATUS: Mapping[str, int] = {
    "bad_request": 400,
    "bad_time": 400,
    "unknown_site": 400,
    "impossible_rate": 400,
    "unauthorized": 401,
    "token_expired": 401,
    "forbidden": 403,
    "unknown_transit": 404,
    "unknown_template": 404,
    "unknown_policy": 404,
    "unknown_workflow": 404,
    "unknown_measurement": 404,
    "unknown_task": 404,
    "unknown_agent": 404,
    "unknown_anomaly": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "timeout": 408,
    "conflict": 409,
    "too_large": 413,
    "internal": 500,
    "controller_unavailable": 503,
    "store_unavailable": 503,
    "archive_unavailable": 503,
    "busy": 503,
}
"""Every error code there is, and the HTTP status it comes with."""

_LONGEST = 500  # characters of a message: it may quote what was sent


class Error(BaseModel):
    """A stable code, and one line for people."""

    code: str
    message: str


class ErrorBody(BaseModel):
    """The body of every answer that is no success."""

    error: Error


def error_answer(code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer for an error code."""
    status = STATUS.get(code, 500)
    if status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return JSONResponse({"error": error_body(code, message)}, status, headers)


def error_body(code: str, message: str) -> dict[str, str]:
    """An error as an answer shows it."""
    if len(message) > _LONGEST:
        message = message[: _LONGEST - 1] + "…"
    return {"code": code, "message": printable(message)}


def answer_to(error: AdonError) -> JSONResponse:
    """The answer for an error that a user can mend, or wait for."""
    return error_answer(error.code or "internal", str(error))


def add_errors(app: FastAPI, redact: Callable[[Any, str], str]) -> None:
    """Make every error of ``app`` have the one shape. ``redact`` gives what a caller may know of a
    message."""

    def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, AdonError)
        words = str(error)
        if error.code != "unknown_transit":  # it has no other id than was asked for
            words = redact(request.state.principal, words)
        return error_answer(error.code or "internal", words)

    def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return error_answer("bad_request", "; ".join(_problem(e) for e in error.errors()[:5]))

    def unrouted(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        where = f"{request.method} {request.url.path}"
        if error.status_code == 404:
            return error_answer(
                "not_found", f"{where} is no address of this service: see /openapi.json"
            )
        if error.status_code == 405:
            methods = {m for m in ("GET", "POST", "PUT", "PATCH", "DELETE") if _takes(request, m)}
            methods |= {"HEAD"} if "GET" in methods else set()
            allowed = ", ".join(sorted(methods))
            return error_answer(
                "method_not_allowed",
                f"{where}: expected {allowed or 'another address'}, see /openapi.json",
                {"Allow": allowed},
            )
        return error_answer("bad_request", f"{where}: {error.detail}")

    def unexpected(request: Request, error: Exception) -> JSONResponse:
        return error_answer("internal", f"{type(error).__name__}: see the log of the broker")

    app.add_exception_handler(AdonError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, unexpected)


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def _problem(error: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    kind = error["type"]
    value = "" if kind in ("missing", "json_invalid") else f" (found {error['input']!r:.80})"
    return f"{place}: {error['msg']}{value}"
