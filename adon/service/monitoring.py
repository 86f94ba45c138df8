"""The parts of the broker's process that monitor, started and stopped together.

Measuring has a module of its own; the other parts are here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.config.sections import MonitoringConfig
from adon.service import measuring
from adon.service.parts import BackgroundService, MonitoringPart, Notifier, PartContext

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.registry import Collector

    from monitors.alerts.notices.service import NoticeService
    from monitors.alerts.notices.workflows import WorkflowNotices
    from monitors.archive.archive import Archive
    from monitors.rules import Rules
    from network_provisioner.access import Keyring
    from network_provisioner.api.federation import Issuers
    from network_provisioner.api.login import BrowserLogins
    from network_provisioner.base.model import Transit
    from network_provisioner.topology.link_failures import News

_log = logging.getLogger(__name__)


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
        """Start every service. Raises AdonError; then none continues running."""
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
            except Exception:  # the others must be stopped all the same
                _log.exception("a part of monitoring did not stop as it should")


def make_monitoring(around: PartContext) -> Monitoring:
    """All parts, not started. Raises InputError for what the configuration has wrong."""
    parts = (
        archive_part, workflows_part, measuring.make, anomalies_part, notices_part,
        perfsonar_part, dashboard_part,
    )  # fmt: skip
    return Monitoring([make(around) for make in parts])


def documented_routes() -> list[APIRouter]:
    """The routes of all parts without anything behind them: for the description of the service."""
    from adon.dashboard.routes import router as dashboard
    from monitors.api import anomalies, perfsonar, workflows

    nobody: Any = None
    return [
        *archive_routers(nobody, nobody, time.time),
        workflows.refresh_router(nobody, nobody, nobody),
        workflows.router(nobody),
        *measuring.documented_routes(),
        anomalies.router(nobody, nobody, nobody),
        perfsonar.router(nobody, nobody, nobody),
        dashboard(nobody, nobody, nobody, nobody),
    ]


def archive_part(around: PartContext) -> MonitoringPart:
    """Measurements over HTTP, their retention, and metrics for Prometheus. Raises InputError."""
    from monitors.api.archive import ArchiveMetrics
    from monitors.archive.retaining import RetentionService
    from monitors.archive.retention.horizons import retention_from_dict

    archive, clock = around.archive, around.clock
    retention = retention_from_dict(around.settings.retention)
    # The log has its words, which not everybody may read.
    around.broker.other_problems += [
        lambda: "the archive cannot be written" if archive.problem else "",
        lambda: "the archive is damaged" if archive.damage else "",
    ]
    store = around.store
    changes = (lambda: store.changes) if store else int
    return MonitoringPart(
        routers=archive_routers(archive, around.rules, clock, changes),
        collectors=[ArchiveMetrics(archive, around.rules, clock)],
        services=[around.outbox, RetentionService(archive, retention, clock)],
    )


def archive_routers(
    archive: Archive, rules: Rules, clock: Callable[[], float], changes: Callable[[], int] = int
) -> list[APIRouter]:
    """The routes of the archive. ``changes`` counts those of transits and documents."""
    from monitors.api import archive as measurements
    from monitors.api import knowledge, plans, streams

    return [
        knowledge.router(archive, rules, clock),
        plans.router(archive, clock),
        measurements.router(archive, rules, clock),
        streams.router(streams.Feed(archive, changes), rules),
    ]


def workflows_part(around: PartContext) -> MonitoringPart:
    """Workflows over HTTP, and those that the broker itself follows. Raises InputError."""
    from monitors.api import workflows
    from monitors.api.visible import Visible
    from monitors.workflows.service import Followers, FollowService, Refresher

    settings = around.settings
    # It answers requests of the archive too, which another broker may have been sent.
    follows = FollowService(around.archive, settings.workflows, around.clock)
    refresher = Refresher(around.archive, around.clock, follows)

    def transits_of(workflow: str) -> Sequence[Transit]:
        return around.broker.list(workflow=workflow)

    seen = Visible(around.archive, around.rules, around.workflows, transits_of)
    followers = Followers(around.clock)
    around.silent.append(followers.silent)
    # What ends in a word of its own before what takes any name.
    return MonitoringPart(
        (workflows.refresh_router(seen, refresher, followers), workflows.router(seen)),
        services=(follows,),
    )


def anomalies_part(around: PartContext) -> MonitoringPart:
    """Detection of anomalies in what is measured. Raises InputError."""
    from monitors.alerts.anomalies.service import AnomalyService
    from monitors.alerts.anomalies.settings import watch_from_dict
    from monitors.api import anomalies

    watch = watch_from_dict(around.settings.anomalies)
    service = AnomalyService(around.archive, watch, around.notifier.tell, around.clock)
    return MonitoringPart(
        routers=[anomalies.router(around.archive, around.rules, service.limits)],
        services=[service],
    )


def notices_part(around: PartContext) -> MonitoringPart:
    """Who tells people. Raises InputError."""
    from monitors.alerts.notices.service import NoticeService
    from monitors.alerts.notices.workflows import WorkflowNotices

    services: list[Notifier | WorkflowNotices] = [around.notifier]
    around.broker.link_listeners.append(partial(_tell_of_network, around.notifier))
    if around.settings.notices and isinstance(around.notifier, NoticeService):
        services.append(
            WorkflowNotices(around.archive, around.notifier, around.clock, around.workflows)
        )
    return MonitoringPart(services=tuple(services))


def _tell_of_network(notifier: Notifier, news: News) -> None:
    """Once that something is wrong with a link or switch, and once that it is not any more."""
    again = ":again" if news.at else ""
    notifier.tell("link", f"{news.what}:{news.since:.3f}{again}", f"The {news}", asdict(news))


def perfsonar_part(around: PartContext) -> MonitoringPart:
    """What perfSONAR measures: results that are posted, and archives that are read. Raises
    InputError."""
    from monitors.api import perfsonar
    from monitors.measurements.perfsonar.reader import Reader, Readers, fetch_of
    from monitors.measurements.perfsonar.settings import settings_from_list

    settings = settings_from_list(around.settings.perfsonar, around.topology, around.folder)
    readers = [
        Reader(remote, settings.hosts, around.archive, fetch_of(remote))
        for remote in settings.remotes
    ]
    around.silent.extend(partial(reader.silent, around.clock) for reader in readers)
    return MonitoringPart(
        routers=[perfsonar.router(around.archive, settings.hosts, around.clock)],
        services=[Readers(readers, around.clock)] if readers else [],
    )


@lru_cache(1)
def _logins(federation: Issuers) -> BrowserLogins:
    from network_provisioner.api.login import BrowserLogins

    return BrowserLogins(federation.issuers, federation)


def logins_of(keyring: Keyring) -> BrowserLogins | None:
    """Those that adon.yml names now, None if it names no issuer."""
    federation: Any = keyring.federation
    return None if federation is None else _logins(federation)


def dashboard_part(around: PartContext) -> MonitoringPart:
    """The dashboard: its pages, the routes that are its own, and the size of the pool over time.
    Where adon.yml names no pool, none is sampled. Raises InputError."""
    from adon.dashboard.routes import PATHS, login_router, pages_router, router
    from adon.service.poolsize import PoolSize, ResidentPool

    sampled = (
        []
        if around.collector is None
        else [PoolSize(ResidentPool(around.collector), around.outbox, around.clock)]
    )
    return MonitoringPart(
        routers=[
            login_router(partial(logins_of, around.keyring)),
            pages_router(),
            router(around.broker, around.archive, around.rules, around.topology, around.clock),
        ],
        services=sampled,
        pages=PATHS,
    )


def notifier_of(
    settings: MonitoringConfig,
    archive: Archive,
    clock: Callable[[], float],
    folder: Path = Path(),
) -> NoticeService:
    """Who tells people, not started. Files that the section names are relative to ``folder``.
    Raises InputError."""
    from monitors.alerts.notices.service import NoticeService
    from monitors.alerts.notices.targets import targets_from_list

    targets = targets_from_list(settings.notices, folder)
    return NoticeService(targets, archive, clock, time.monotonic)


def watching(
    settings: MonitoringConfig,
    archive: Archive,
    clock: Callable[[], float],
    folder: Path = Path(),
) -> tuple[NoticeService, WorkflowNotices]:
    """For processes other than the broker that record workflows in ``archive``: who tells people,
    and who finds what is to be told. Start both in this order, stop them in the other. Raises
    InputError."""
    from monitors.alerts.notices.workflows import WorkflowNotices
    from monitors.workflows.overview import KnownWorkflows

    notifier = notifier_of(settings, archive, clock, folder)
    known = KnownWorkflows(archive, clock, settings.stuck_after)
    return notifier, WorkflowNotices(archive, notifier, clock, known)
