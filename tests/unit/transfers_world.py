"""Runs of HTCondor jobs, their events and a broker, for the tests of condor_plugins.transfers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from made_transit import made_transit

from condor_plugins.jobs.request_builder import Run
from condor_plugins.transfers.decide import QueuedJob
from condor_plugins.transfers.run_state import RunEvent
from monitors.workflows.logs.events import Kind, TransferStep
from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import (
    Transit,
    TransitState,
)

SCHEDD = "ap@ap.test"
GLOBAL_ID = "ap@ap.test#12.0#1795283502"
JOB = "ap@ap.test-12.0-1795283502"
AD: dict[str, Any] = {
    "GlobalJobId": GLOBAL_ID, "NumShadowStarts": 1, "JobUniverse": 5, "Owner": "ann",
    "ShouldTransferFiles": "YES", "MachineAttrAdonSite0": "tacc", "Cmd": "/bin/sh",
}  # fmt: skip


def event(
    kind: Kind, at: float = 0.0, starts: int = 1, moving: TransferStep | None = None, **more: Any
) -> RunEvent:
    return RunEvent(kind, JOB, starts, at, moving, {**AD, "NumShadowStarts": starts, **more})


def move(moving: TransferStep, at: float = 0.0, starts: int = 1, **more: Any) -> RunEvent:
    return event(Kind.FILE_TRANSFER, at, starts, moving, **more)


def transit(transit_id: str, at: float = 0.0, size: int | None = 1000) -> Transit:
    return made_transit(
        transit_id, "local", "tacc", TransitState.INSTALLED, size_bytes=size, requested_at=at,
        lease_until=at + 1e6,
    )  # fmt: skip


def running(run: Run) -> QueuedJob:
    return QueuedJob(2, run.starts)


class FakeSchedd:
    """A queue that says what it is told to say."""

    def __init__(self) -> None:
        self.queue: dict[str, QueuedJob] = {}
        self.away = False
        self.history: dict[Run, dict[str, Any]] = {}
        self.disk_is_slow = False

    def name(self) -> str:
        if self.away:
            raise AdonError("no schedd")
        return SCHEDD

    def jobs(self, names: Iterable[str]) -> dict[str, QueuedJob]:
        self.name()
        return {name: self.queue[name] for name in names if name in self.queue}

    def input_history(self, runs: Collection[Run]) -> dict[Run, dict[str, Any]]:
        self.name()
        return {run: ad for run, ad in self.history.items() if run in runs}

    def disk_waits(self, machine: str, since: float) -> bool:
        return self.disk_is_slow


class FakeEvents:
    """An event log that is written by hand."""

    def __init__(self) -> None:
        self.new: list[RunEvent] = []

    def files(self) -> list[Path]:
        return []

    def read(self) -> list[RunEvent]:
        new, self.new = self.new, []
        return new
