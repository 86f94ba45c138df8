"""Detection of anomalies in what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adon.config.sections import MonitoringConfig
from adon.service.parts import MonitoringPart, PartContext
from monitors.alerts.anomalies.settings import watch_from_dict
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter


def make(around: PartContext) -> MonitoringPart:
    """The part. Raises InputError."""
    from monitors.alerts.anomalies.service import AnomalyService
    from monitors.api import anomalies

    watch = watch_from_dict(around.settings.anomalies)
    service = AnomalyService(around.archive, watch, around.notifier.tell, around.clock)
    return MonitoringPart(
        routers=[anomalies.router(around.archive, around.rules, service.limits)],
        services=[service],
    )


def check(settings: MonitoringConfig, topology: Topology) -> None:
    """Raises InputError for what cannot be meant."""
    watch_from_dict(settings.anomalies)


def described() -> list[APIRouter]:
    """The part's routes without anything behind them: for the description of the service."""
    from monitors.api import anomalies

    nobody: Any = None
    return [anomalies.router(nobody, nobody, nobody)]
