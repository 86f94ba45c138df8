"""What agents report of their hosts' disks each second, in the archive as a row per ten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from monitors.archive.outbox import Outbox
from monitors.base.measurement import Measurement
from network_provisioner.state.disks import DiskSample

METRIC = "disk_io"
PERIOD_S = 10.0
MOST_SECONDS = 20  # of one report; what waits for longer at an agent is thrown away
MOST_PROCESSES = 20  # of a second, the busiest


@dataclass(frozen=True, slots=True)
class ProcessSecond:
    """What a process read and wrote in a second (bit/s), and the share of it that it waited for
    disks; None where delay accounting is off."""

    name: str
    pid: int
    read_bps: float
    write_bps: float
    io_wait: float | None


@dataclass(frozen=True, slots=True)
class DiskReport:
    """Seconds of a host, oldest first, and the busiest processes in them. ``source``: where I/O
    wait is from, ``delay``, ``pressure`` or ``iowait``."""

    source: str
    seconds: Sequence[DiskSample]
    processes: Sequence[ProcessSecond]

    def __add__(self, later: DiskReport) -> DiskReport:
        """Both, from the same source."""
        processes = [*self.processes, *later.processes]
        return DiskReport(self.source, [*self.seconds, *later.seconds], processes)


class DiskPeriods:
    """Hands on what agents report at once, and archives it by tens of seconds. Thread-safe."""

    def __init__(
        self, hand_on: Callable[[str, Sequence[DiskSample], str], None], outbox: Outbox
    ) -> None:
        self._hand_on, self._outbox = hand_on, outbox
        self._lock = threading.Lock()
        self._open: dict[str, DiskReport] = {}

    def take_in(self, agent: str, report: DiskReport) -> None:
        """A report of an agent; the first of ten new seconds has those before it archived."""
        self._hand_on(agent, report.seconds, report.source)
        with self._lock:
            before = self._open.get(agent)
            same = before is not None and _period(before) == _period(report)
            self._open[agent] = before + report if before and same else report
        if before is None or same:
            return
        self._outbox.record_many([row(agent, before)])


def _period(report: DiskReport) -> tuple[str, float]:
    return report.source, report.seconds[0].at // PERIOD_S


def row(agent: str, report: DiskReport) -> Measurement:
    """As the archive has it, at the end of the last second; rates without fractions."""
    at = report.seconds[-1].at
    seconds = [
        [round(s.at, 3), round(s.read_bps), round(s.write_bps), round(s.io_wait, 3)]
        for s in report.seconds
    ]
    processes = [
        [p.name, p.pid, round(p.read_bps), round(p.write_bps), p.io_wait and round(p.io_wait, 3)]
        for p in report.processes
    ]
    return Measurement(
        f"{METRIC}:{agent}:{at:.3f}", METRIC, agent, fmean(s.io_wait for s in report.seconds), "1",
        at, f"agent:{agent}",
        details={"source": report.source, "seconds": seconds, "processes": processes},
    )  # fmt: skip
