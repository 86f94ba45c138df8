"""Measurements over HTTP, their retention, and metrics for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adon.config.sections import MonitoringConfig
from adon.service.parts import MonitoringPart, PartContext
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter

    from monitors.archive.archive import Archive
    from monitors.rules import Rules


def make(around: PartContext) -> MonitoringPart:
    """The part. Raises InputError."""
    from monitors.archive.prometheus import ArchiveMetrics
    from monitors.archive.retention.horizons import retention_from_dict
    from monitors.archive.retention.service import RetentionService

    archive, clock = around.archive, around.clock
    retention = retention_from_dict(around.settings.retention)
    # The log has its words, which not everybody may read.
    around.broker.other_problems.append(
        lambda: "the archive cannot be written" if archive.problem else ""
    )
    return MonitoringPart(
        routers=routers(archive, around.rules, clock),
        collectors=[ArchiveMetrics(archive, around.rules, clock)],
        services=[around.outbox, RetentionService(archive, retention, clock)],
    )


def check(settings: MonitoringConfig, topology: Topology) -> None:
    """Raises InputError for what cannot be meant."""
    from monitors.archive.retention.horizons import retention_from_dict

    retention_from_dict(settings.retention)


def described() -> list[APIRouter]:
    """The part's routes without anything behind them: for the description of the service."""
    nobody: Any = None
    return routers(nobody, nobody, time.time)


def routers(archive: Archive, rules: Rules, clock: Callable[[], float]) -> list[APIRouter]:
    """The part's routes."""
    from monitors.api import archive as measurements
    from monitors.api import feed, knowledge
    from monitors.archive.feed import Feed

    return [
        knowledge.router(archive, rules, clock),
        measurements.router(archive, rules, clock),
        feed.router(Feed(archive), rules),
    ]
