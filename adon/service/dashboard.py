"""The dashboard: its pages, the routes that are its own, and the size of the pool over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adon.config.sections import MonitoringConfig
from adon.dashboard.pages import PATHS
from adon.dashboard.pages import router as pages
from adon.dashboard.routes import router
from adon.service.parts import MonitoringPart, PartContext
from adon.service.poolsize import PoolSize, ResidentPool
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter


def make(around: PartContext) -> MonitoringPart:
    """The part. Where adon.yml names no pool, none is sampled. Raises InputError."""
    sampled = (
        []
        if around.collector is None
        else [PoolSize(ResidentPool(around.collector), around.outbox, around.clock)]
    )
    return MonitoringPart(
        routers=[pages(), router(around.broker, around.archive, around.rules, around.topology)],
        services=sampled,
        pages=PATHS,
    )


def check(settings: MonitoringConfig, topology: Topology) -> None:
    """Raises InputError for what cannot be meant: nothing of this part can be set."""


def described() -> list[APIRouter]:
    """The part's routes without anything behind them: for the description of the service."""
    nobody: Any = None
    return [router(nobody, nobody, nobody, nobody)]
