"""Workflows over HTTP, and those that the broker itself follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adon.config.sections import MonitoringConfig
from adon.service.parts import MonitoringPart, PartContext
from network_provisioner.base.errors import InputError
from network_provisioner.base.model import Transit
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from fastapi import APIRouter


def make(around: PartContext) -> MonitoringPart:
    """The part. Raises InputError."""
    from monitors.api import refreshes, workflows
    from monitors.api.visible import Visible
    from monitors.workflows.service import FollowService, Refresher

    settings = around.settings
    # It answers requests of the archive too, which another broker may have been sent.
    follows = FollowService(around.archive, settings.workflows, around.clock)
    refresher = Refresher(around.archive, around.clock, follows)

    def transits_of(workflow: str) -> Sequence[Transit]:
        return around.broker.list(workflow=workflow)

    seen = Visible(around.archive, around.rules, around.workflows, transits_of)
    # What ends in a word of its own before what takes any name.
    return MonitoringPart(
        (refreshes.router(seen, refresher), workflows.router(seen)), services=(follows,)
    )


def check(settings: MonitoringConfig, topology: Topology) -> None:
    """Raises InputError for what cannot be meant."""
    from monitors.workflows.service import check_workflows

    try:
        check_workflows(settings.workflows)
    except InputError as error:
        raise InputError(f"monitoring.{error}") from None


def described() -> list[APIRouter]:
    """The part's routes without anything behind them: for the description of the service."""
    from monitors.api import refreshes, workflows

    nobody: Any = None
    return [refreshes.router(nobody, nobody), workflows.router(nobody)]
