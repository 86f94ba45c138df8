"""The parts of the broker's process that monitor, started and stopped together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adon.config.sections import MonitoringConfig
from adon.service import anomalies, archive, dashboard, measuring, notices, perfsonar, workflows
from adon.service.parts import BackgroundService, MonitoringPart, PartContext
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.registry import Collector

_log = logging.getLogger(__name__)
_PARTS = (archive, workflows, measuring, anomalies, notices, perfsonar, dashboard)


@dataclass
class Monitoring:
    """All parts together."""

    parts: Sequence[MonitoringPart]
    _started: list[BackgroundService] = field(default_factory=list)

    @property
    def routers(self) -> list[APIRouter]:
        """Of all parts."""
        return [router for part in self.parts for router in part.routers]

    @property
    def collectors(self) -> list[Collector]:
        """Of all parts."""
        return [collector for part in self.parts for collector in part.collectors]

    @property
    def pages(self) -> list[str]:
        """Of all parts."""
        return [page for part in self.parts for page in part.pages]

    def start(self) -> None:
        """Start every service. Raises AdonError; then none goes on running."""
        try:
            for part in self.parts:
                for service in part.services:
                    service.start()
                    self._started.append(service)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop what was started, the last one first."""
        while self._started:
            try:
                self._started.pop().stop()
            except Exception:  # the others are to be stopped all the same
                _log.exception("a part of monitoring did not stop as it should")


def make_monitoring(around: PartContext) -> Monitoring:
    """All parts, not started. Raises InputError for what the configuration has wrong."""
    return Monitoring([part.make(around) for part in _PARTS])


def check(settings: MonitoringConfig, topology: Topology) -> None:
    """Whether the section can be used, before anything is opened. Raises InputError."""
    for part in _PARTS:
        part.check(settings, topology)


def described() -> list[APIRouter]:
    """The routes of all parts without anything behind them."""
    return [router for part in _PARTS for router in part.described()]
