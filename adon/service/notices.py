"""Telling people."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from adon.config.sections import MonitoringConfig
from adon.service.parts import MonitoringPart, Notifier, PartContext

if TYPE_CHECKING:
    from monitors.alerts.notices.service import NoticeService
    from monitors.alerts.notices.workflows import WorkflowNotices
    from monitors.archive.archive import Archive
    from network_provisioner.topology.link_failures import News


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


def make(around: PartContext) -> MonitoringPart:
    """The part. Raises InputError."""
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
