"""What a part of monitoring is given, and what it adds to the broker's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from adon.config.sections import MonitoringConfig
from network_provisioner.access import Keyring
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.registry import Collector

    from monitors.archive.archive import Archive
    from monitors.archive.outbox import Outbox
    from monitors.rules import Rules
    from monitors.workflows.overview import KnownWorkflows
    from network_provisioner.broker import Broker
    from network_provisioner.stores.store import Store


Silent = Callable[[], Mapping[str, tuple[float, str]]]
"""What is silent, by its name: since when (Unix seconds), and why that is known, as text."""


class BackgroundService(Protocol):
    """Something that runs in threads of its own."""

    def start(self) -> None:
        """Begin. Raises nothing that is not an AdonError."""

    def stop(self) -> None:
        """End, and wait for the end. Harmless where it was never started."""


class Notifier(BackgroundService, Protocol):
    """Tells people."""

    def tell(self, kind: str, key: str, text: str, details: Mapping[str, Any]) -> None:
        """Tell those who want to know of ``kind`` once for each ``key``. Returns at once; never
        raises."""


@dataclass(frozen=True)
class PartContext:
    """What a part is made of: section ``monitoring`` of adon.yml and the ``folder`` of that file,
    the collector of section ``pool``, None without one, where the broker keeps its ``state`` and
    the ``store`` that it is in, the ``outbox`` of the archive, for what cannot be measured again,
    and a ``clock`` that gives Unix seconds. ``silent``: who tells which
    sources of a part are silent."""

    settings: MonitoringConfig
    collector: str | None
    state: str
    folder: Path
    archive: Archive
    outbox: Outbox
    broker: Broker
    topology: Topology
    keyring: Keyring
    rules: Rules
    notifier: Notifier
    clock: Callable[[], float]
    store: Store | None = None
    silent: list[Silent] = field(default_factory=list)

    @cached_property
    def workflows(self) -> KnownWorkflows:
        """What the archive knows of workflows, read once for all parts."""
        from monitors.workflows.overview import KnownWorkflows

        return KnownWorkflows(self.archive, self.clock, self.settings.stuck_after)


@dataclass(frozen=True)
class MonitoringPart:
    """What a part adds: routes, metrics for Prometheus, services, and paths that are for
    anybody."""

    routers: Sequence[APIRouter] = ()
    collectors: Sequence[Collector] = ()
    services: Sequence[BackgroundService] = ()
    pages: Sequence[str] = ()
