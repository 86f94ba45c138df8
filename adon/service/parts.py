"""The parts of the broker's process that monitor, started and stopped together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from adon.config.sections import MonitoringConfig
from network_provisioner.access import Keyring
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.registry import Collector

    from monitors.archive.archive import Archive
    from monitors.rules import Rules
    from monitors.workflows.overview import KnownWorkflows
    from network_provisioner.broker import Broker

_log = logging.getLogger(__name__)

NAMES = ("archive", "workflows", "measuring", "anomalies", "notices", "perfsonar", "dashboard")


class Service(Protocol):
    """Something that runs in threads of its own."""

    def start(self) -> None:
        """Begin. Raises nothing that is not an AdonError."""

    def stop(self) -> None:
        """End, and wait for the end. Harmless where it was never started."""


class Notifier(Service, Protocol):
    """Tells people."""

    def tell(self, kind: str, key: str, text: str, details: Mapping[str, Any]) -> None:
        """Tell those who want to know of ``kind`` once for each ``key``. Returns at once; never
        raises."""


@dataclass(frozen=True)
class Around:
    """What a part is made of: section ``monitoring`` of adon.yml and the ``folder`` of that file,
    the collector of section ``pool``, None without one, where the broker keeps its ``state``, and
    a ``clock`` that gives Unix seconds."""

    settings: MonitoringConfig
    collector: str | None
    state: str
    folder: Path
    archive: Archive
    broker: Broker
    topology: Topology
    keyring: Keyring
    rules: Rules
    notifier: Notifier
    clock: Callable[[], float]

    @cached_property
    def workflows(self) -> KnownWorkflows:
        """What the archive knows of workflows, read once for all parts."""
        from monitors.workflows.overview import KnownWorkflows

        return KnownWorkflows(self.archive, self.clock, self.settings.stuck_after)


@dataclass(frozen=True)
class Part:
    """What a part adds: routes, metrics for Prometheus, services, and paths that are for
    anybody."""

    routers: Sequence[APIRouter] = ()
    collectors: Sequence[Collector] = ()
    services: Sequence[Service] = ()
    pages: Sequence[str] = ()


@dataclass
class Monitoring:
    """All parts together."""

    parts: Sequence[Part]
    _started: list[Service] = field(default_factory=list)

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


def make_monitoring(around: Around) -> Monitoring:
    """All parts, not started. Raises InputError for what the configuration has wrong."""
    return Monitoring([import_module(f"adon.service.{name}").make(around) for name in NAMES])


def check(settings: MonitoringConfig, topology: Topology) -> None:
    """Whether the section can be used, before anything is opened. Raises InputError."""
    for name in NAMES:
        import_module(f"adon.service.{name}").check(settings, topology)


def described() -> list[APIRouter]:
    """The routes of all parts without anything behind them."""
    return [
        router for name in NAMES for router in import_module(f"adon.service.{name}").described()
    ]
