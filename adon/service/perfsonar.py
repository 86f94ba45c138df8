"""What perfSONAR measures: results that are posted, and archives that are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.config.sections import MonitoringConfig
from adon.service.parts import MonitoringPart, PartContext
from monitors.measurements.perfsonar.settings import settings_from_list
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter


def make(around: PartContext) -> MonitoringPart:
    """The part. Raises InputError."""
    from monitors.api import perfsonar
    from monitors.measurements.perfsonar.reader import Reader, Readers, fetch_of

    settings = settings_from_list(around.settings.perfsonar, around.topology, around.folder)
    readers = [
        Reader(remote, settings.hosts, around.archive, fetch_of(remote))
        for remote in settings.remotes
    ]
    return MonitoringPart(
        routers=[perfsonar.router(around.archive, settings.hosts, around.clock)],
        services=[Readers(readers, around.clock)] if readers else [],
    )


def check(settings: MonitoringConfig, topology: Topology) -> None:
    """Raises InputError for what cannot be meant."""
    settings_from_list(settings.perfsonar, topology, Path())


def described() -> list[APIRouter]:
    """The part's routes without anything behind them: for the description of the service."""
    from monitors.api import perfsonar

    nobody: Any = None
    return [perfsonar.router(nobody, nobody, nobody)]
