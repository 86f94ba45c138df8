"""The application: gate, routes, the sweep that goes with serving, and its description."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from prometheus_client.registry import Collector
from starlette.middleware.gzip import GZipMiddleware

from network_provisioner.access import Keyring
from network_provisioner.api import (
    network,
    policies,
    relays,
    templates,
    transits,
)
from network_provisioner.api.answers import Unchanged
from network_provisioner.api.forward import Forward, Trust
from network_provisioner.api.gate import Gate
from network_provisioner.api.metrics import Metrics
from network_provisioner.api.problems import ErrorBody, add_errors
from network_provisioner.api.redaction import Redaction
from network_provisioner.api.workers import Workers
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.release import release
from network_provisioner.broker import Broker
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.stores.store import Store
from network_provisioner.templates.registry import TemplateRegistry

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 1.0
LOOK_EVERY_S = 0.2  # for what fails: transfers there do not wait for the next sweep
COUNT_EVERY_S = 0.1  # bytes of transits whose disks are looked for
_DESCRIPTION = """
Paths with bandwidth between sites: requests become circuits on switches, never more than the links
carry. Sizes are bytes, rates bits per second, times seconds. Every error has the shape of
`ErrorBody`, with a code that stays. See docs/api.md.
"""


@dataclass(frozen=True, slots=True)
class Registries:
    """Policies and templates, the same ones that the broker uses, and its store: the accounts."""

    policies: PolicyRegistry
    templates: TemplateRegistry
    store: Store


def create_app(
    broker: Broker,
    keyring: Keyring | None = None,
    registries: Registries | None = None,
    more: Sequence[APIRouter] = (),
    collectors: Sequence[Collector] = (),
    pages: Sequence[str] = (),
    own_host: Callable[[str], bool] | None = None,
    trust: Trust | None = None,
) -> FastAPI:
    """The application around a broker that was started already.

    While it serves, it calls ``broker.sweep`` every second. ``keyring`` says who may do what;
    without keys everybody may do everything. Without ``registries`` there are transits and the
    network, but no policies, templates and accounts. ``more`` are routes and ``collectors`` metrics
    of others; of those routes, what is below one of ``pages`` needs no token. ``own_host`` as
    :class:`~network_provisioner.api.gate.Gate` takes it; without it any name is answered to. By
    ``trust`` a broker that follows asks the one that leads.
    """
    workers = Workers()
    metrics = Metrics(broker, collectors)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        works = (_sweep_for_ever, _count_for_ever)
        tasks = [asyncio.create_task(work(broker, workers)) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            workers.close()

    # "default" also keeps FastAPI from describing its own shape of validation errors.
    codes: tuple[int | str, ...] = (400, 401, 403, 404, 408, 409, 413, 500, 503, "default")
    app = FastAPI(
        title="ADON network broker",
        version=release(),
        description=_DESCRIPTION,
        lifespan=lifespan,
        dependencies=[Depends(given_once)],
        responses={status: {"model": ErrorBody} for status in codes},
        docs_url=None,  # both load scripts from another host
        redoc_url=None,
        redirect_slashes=False,  # a redirection is no answer in our shape
    )
    ring = keyring if keyring is not None else Keyring((), time.time)
    app.add_middleware(Unchanged)
    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)
    app.add_middleware(Forward, broker=broker, trust=trust or Trust(), pages=tuple(pages))
    app.add_middleware(
        Gate,
        keyring=ring,
        pages=tuple(pages),
        own_host=own_host,
        secret=lambda: broker.leader.secret if broker.leader else "",
    )
    add_errors(app, Redaction(broker).text)
    app.include_router(transits.router(broker, workers, metrics))
    app.include_router(network.router(broker, workers, metrics))
    app.include_router(relays.router(broker, workers))
    if registries is not None:
        app.include_router(policies.router(registries.policies, broker, workers))
        for routes in (templates.router, templates.trial_router):
            app.include_router(routes(registries.templates, broker, workers))
        app.include_router(policies.accounting_router(registries.store, workers))
    for others in more:
        app.include_router(others)
    _describe_security(app)
    return app


def description(more: Sequence[APIRouter] = ()) -> dict[str, Any]:
    """What ``/openapi.json`` answers, also where no broker runs."""
    nobody: Any = None
    return create_app(nobody, registries=Registries(nobody, nobody, nobody), more=more).openapi()


def _describe_security(app: FastAPI) -> None:
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema.setdefault("components", {})["securitySchemes"] = {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key's token, or an OpenID Connect or SciTokens token (JWT) of "
                "an issuer that the broker trusts",
            },
            "certificate": {"type": "mutualTLS"},
        }
        schema["security"] = [{"token": []}, {"certificate": []}]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


async def _sweep_for_ever(broker: Broker, workers: Workers) -> None:
    while True:
        until = time.monotonic() + SWEEP_EVERY_S
        await asyncio.sleep(min(SWEEP_EVERY_S, LOOK_EVERY_S))
        while (left := until - time.monotonic()) > 0 and not broker.has_news():
            await asyncio.sleep(min(left, LOOK_EVERY_S))
        try:
            await workers.change(broker.sweep)
        except BrokerError as error:  # the store: said when it began, and by the broker's health
            log.debug("a sweep was refused: %s", error)
        except Exception:  # leases must go on ending whatever one sweep met
            log.exception("a sweep failed; the next one is due in %g s", SWEEP_EVERY_S)


async def _count_for_ever(broker: Broker, workers: Workers) -> None:
    while True:
        await asyncio.sleep(COUNT_EVERY_S)
        if broker.io_aware.counts:
            try:
                if await workers.read(broker.io_aware.count):
                    await workers.change(broker.sweep)
            except BrokerError as error:
                log.debug("a period waits for the next sweep: %s", error)
            except Exception:  # what is not counted now is counted later
                log.exception("transits cannot be counted")


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
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        if name in twice and parameter["in"] == "query" and not _is_list(parameter["schema"]):
            raise InputError(f"query: {name!r} is given {given[name]} times, expected once")


def _is_list(schema: dict[str, Any]) -> bool:
    return any(option.get("type") == "array" for option in (schema, *schema.get("anyOf", ())))
