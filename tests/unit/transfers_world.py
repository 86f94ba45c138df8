"""Runs of HTCondor jobs, their events and a broker, for the tests of condor_plugins.transfers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from condor_plugins.transfers.decide import Queued
from condor_plugins.transfers.events import RunEvent
from condor_plugins.transfers.ids import Run
from monitors.workflows.logs.events import Kind, TransferStep
from network_provisioner.client import Asked
from network_provisioner.errors import AdonError, BrokerError
from network_provisioner.model import (
    ENDED,
    LIVE,
    Service,
    Transit,
    TransitRequest,
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
    return Transit(
        transit_id, "local", "tacc", TransitState.INSTALLED, size_bytes=size, requested_at=at,
        lease_until=at + 1e6,
    )  # fmt: skip


def running(run: Run) -> Queued:
    return Queued(2, run.starts)


class FakeBroker:
    """Gives everybody a path, and remembers how each was given back."""

    def __init__(self) -> None:
        self.transits: dict[str, Transit] = {}
        self.released: list[tuple[str, int, float, str]] = []
        self.renewed: list[str] = []
        self.away = False
        self.queues = False

    def _here(self) -> None:
        if self.away:
            raise BrokerError("nobody there")

    def ask(self, requests: Sequence[TransitRequest], /) -> list[Asked]:
        self._here()
        out = []
        for request in requests:
            known = self.transits.get(request.id)
            if known is None or known.state in ENDED:
                known = transit(request.id, size=request.size_bytes)
                known.src, known.dst, known.reason = request.src, request.dst, request.best_effort
                if request.best_effort:
                    known.state = TransitState.BEST_EFFORT
                elif self.queues:
                    known.state = TransitState.QUEUED
                self.transits[request.id] = known
            out.append(Asked(known, Service()))
        return out

    def get(self, transit_id: str, /) -> Transit:
        self._here()
        return self.transits[transit_id]

    def list(self, state: str | None = None) -> list[Transit]:
        self._here()
        return [t for t in self.transits.values() if t.state == state]

    def release(
        self,
        transit_id: str,
        bytes_moved: int = 0,
        seconds: float = 0.0,
        outcome: str = "",
        **_used: int,
    ) -> Transit:
        self._here()
        found = self.transits.get(transit_id)
        if found is None:
            raise BrokerError(f"unknown transit {transit_id!r}", "unknown_transit")
        if found.state not in ENDED:
            found.state = TransitState.RELEASED
            self.released.append((transit_id, bytes_moved, seconds, outcome))
        if not found.bytes:
            found.bytes, found.seconds = bytes_moved, seconds
        return found

    def renew(self, transit_id: str, lease_s: float) -> Transit:
        self._here()
        self.renewed.append(transit_id)
        return self.transits[transit_id]

    @property
    def live(self) -> set[str]:
        return {t.id for t in self.transits.values() if t.state in LIVE}


class FakeSchedd:
    """A queue that says what it is told to say."""

    def __init__(self) -> None:
        self.queue: dict[str, Queued] = {}
        self.away = False

    def name(self) -> str:
        if self.away:
            raise AdonError("no schedd")
        return SCHEDD

    def jobs(self, names: Iterable[str]) -> dict[str, Queued]:
        self.name()
        return {name: self.queue[name] for name in names if name in self.queue}


class FakeEvents:
    """An event log that is written by hand."""

    def __init__(self) -> None:
        self.new: list[RunEvent] = []

    def read(self) -> list[RunEvent]:
        new, self.new = self.new, []
        return new
