"""The broker over HTTP: REST under ``/v1``, its description under ``/openapi.json``.

Every error, also of validation and routing, has one shape: ``{"error": {"code", "message"}}``.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from network_provisioner.broker import Broker
from network_provisioner.errors import BrokerError
from network_provisioner.model import Transit, TransitRequest, TransitState
from network_provisioner.store import StoreError

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024  # the largest request is well below 10 kB
SWEEP_EVERY_S = 1.0

STATUS: Mapping[str, int] = {
    "bad_request": 400,
    "unknown_site": 400,
    "unknown_template": 400,
    "impossible_rate": 400,
    "unauthorized": 401,
    "unknown_transit": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "too_large": 413,
    "internal": 500,
    "controller_unavailable": 503,
    "store_unavailable": 503,
}
"""Every error code there is, and the HTTP status it comes with."""

_LARGEST = 2**63 - 1


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class TransitBody(_Body):
    """A request for a path. Sizes in bytes, rates in bits per second, times in seconds."""

    id: str = Field(description="chosen by the caller; the same id gives the same transit")
    src: str
    dst: str
    size_bytes: Annotated[int, Field(ge=0, le=_LARGEST)] | None = None
    min_bps: float | None = None
    max_bps: float | None = None
    template: str = "default"
    lease_s: Annotated[float, Field(gt=0)] | None = None
    workflow: str = ""
    job: str = ""
    retry: int = Field(default=0, ge=0, le=_LARGEST)


class ReleaseBody(_Body):
    """What the transfer moved, and how it ended: ``success`` or a word of the caller's."""

    bytes: int = Field(default=0, ge=0, le=_LARGEST)
    seconds: float = Field(default=0.0, ge=0)
    outcome: str = Field(default="", max_length=1000)


class RenewBody(_Body):
    """How long the lease shall last from now."""

    lease_s: float = Field(gt=0)


class Error(BaseModel):
    """A stable code, and one line for people."""

    code: str
    message: str


class ErrorBody(BaseModel):
    """The body of every answer that is no success."""

    error: Error


def create_app(broker: Broker, token: str | None = None) -> FastAPI:
    """The application around a broker that was started already.

    While it serves, it calls ``broker.sweep`` every second. With a ``token``, everything under
    ``/v1`` asks for ``Authorization: Bearer <token>``.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_sweep_for_ever(broker))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def authorize(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise BrokerError("no valid bearer token in the request", "unauthorized")

    # "default" also keeps FastAPI from describing its own shape of validation errors.
    codes: tuple[int | str, ...] = (400, 401, 404, 413, 500, 503, "default")
    app = FastAPI(
        title="ADON network broker",
        version="1",
        lifespan=lifespan,
        dependencies=[Depends(authorize)],
        responses={status: {"model": ErrorBody} for status in codes},
        docs_url=None,  # both load scripts from another host
        redoc_url=None,
    )
    app.add_middleware(_BodyLimit)
    _add_errors(app)
    _add_routes(app, broker)
    return app


def _add_routes(app: FastAPI, broker: Broker) -> None:
    # Plain functions: FastAPI runs them in threads, where the broker may wait for switches.

    @app.post("/v1/transits", status_code=201, responses={200: {"model": Transit}})
    def request_transit(body: TransitBody, response: Response) -> Transit:
        """Ask for a path. 201 for a new transit, 200 for one that the same id got before."""
        transit, new = broker.submit(TransitRequest(**body.model_dump()))
        response.status_code = 201 if new else 200
        return transit

    @app.get("/v1/transits")
    def list_transits(
        state: TransitState | None = None,
        workflow: str | None = None,
        limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
    ) -> list[Transit]:
        """The newest transits, oldest first."""
        return broker.list(state, workflow, limit)

    # ":path" because an id may contain a slash.
    @app.post("/v1/transits/{transit_id:path}/release")
    def release_transit(transit_id: str, body: ReleaseBody | None = None) -> Transit:
        """Give a path back. Idempotent."""
        report = body or ReleaseBody()
        return broker.release(transit_id, report.bytes, report.seconds, report.outcome)

    @app.post("/v1/transits/{transit_id:path}/renew")
    def renew_transit(transit_id: str, body: RenewBody) -> Transit:
        """Make a lease last longer."""
        return broker.renew(transit_id, body.lease_s)

    @app.get("/v1/transits/{transit_id:path}")
    def get_transit(transit_id: str) -> Transit:
        """One transit, with the candidates and scores behind its path."""
        return broker.get(transit_id)

    @app.get("/v1/topology")
    def get_topology() -> dict[str, Any]:
        """Nodes, links, and what is reserved on each direction of a link now."""
        return broker.describe_topology()

    @app.get("/v1/counters")
    def get_counters() -> dict[str, Any]:
        """Bytes sent on each direction of a link, and the circuits on the switches now."""
        return broker.on_switches()

    @app.get("/v1/health")
    def get_health() -> dict[str, Any]:
        """Status, the controller and what it can do, live and queued transits."""
        return broker.health()


def _add_errors(app: FastAPI) -> None:
    def refused(_: Request, error: Exception) -> JSONResponse:
        code = error.code if isinstance(error, BrokerError) else "internal"
        return _error(code, str(error))

    def unstored(_: Request, error: Exception) -> JSONResponse:
        return _error("store_unavailable", str(error))

    def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _error("bad_request", "; ".join(_problem(e) for e in error.errors()[:5]))

    def unrouted(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        where = f"{request.method} {request.url.path}"
        if error.status_code == 404:
            return _error("not_found", f"{where} is no address of this service: see /openapi.json")
        if error.status_code == 405:
            return _error("method_not_allowed", f"{where}: see /openapi.json")
        return _error("bad_request", f"{where}: {error.detail}")

    def unexpected(request: Request, error: Exception) -> JSONResponse:
        return _error("internal", f"{type(error).__name__}: see the log of the broker")

    app.add_exception_handler(BrokerError, refused)
    app.add_exception_handler(StoreError, unstored)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, unexpected)


def _problem(error: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    found = (
        "" if error["type"] in ("missing", "json_invalid") else f" (found {error['input']!r:.80})"
    )
    return f"{place}: {error['msg']}{found}"


def _error(code: str, message: str) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if code == "unauthorized" else None
    body = {"error": {"code": code, "message": message}}
    return JSONResponse(body, STATUS.get(code, 500), headers)


async def _sweep_for_ever(broker: Broker) -> None:
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await asyncio.to_thread(broker.sweep)
        except Exception:  # leases must go on ending whatever one sweep met
            log.exception("a sweep failed; the next one is due in %g s", SWEEP_EVERY_S)


_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class _BodyLimit:
    """Refuses a body above the limit before any of it is kept."""

    def __init__(self, app: Callable[[_Message, _Receive, _Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        messages: list[_Message] = []
        size, more = _declared(scope), True
        while more and size <= MAX_BODY_BYTES:
            message = await receive()
            messages.append(message)
            more = message["type"] == "http.request" and message.get("more_body", False)
            size = max(size, sum(len(m.get("body", b"")) for m in messages))
        if size > MAX_BODY_BYTES:
            refusal = _error("too_large", f"the body is above {MAX_BODY_BYTES} bytes")
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, send)
            return

        async def replay() -> _Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)


def _declared(scope: _Message) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
