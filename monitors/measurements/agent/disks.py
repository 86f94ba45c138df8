"""What this host's disks do, reported each second that they do something."""

from __future__ import annotations

from dataclasses import astuple

from monitors.measurements.agent.beside import Post
from monitors.measurements.disks.periods import MOST_SECONDS, PERIOD_S, DiskReport
from monitors.measurements.disks.reader import DiskReader
from network_provisioner.base.clock import since_boot

_BPS, _WAIT = 1e6, 0.1  # less than both is nothing to be told at once


class DiskReporter:
    """Reports the seconds in which something moved or waited, and the others by ten."""

    every_s = 1.0

    def __init__(self, reader: DiskReader | None = None) -> None:
        self._reader = reader or DiskReader(since_boot)
        self._kept: DiskReport | None = None

    def look(self, post: Post) -> None:
        """See :class:`~.beside.Reporter`. What the broker did not take is told again."""
        second, kept = self._reader.read(), self._kept
        if second is not None:
            joined = kept is not None and kept.source == second.source
            # While the broker is away for long, only the last seconds stay.
            kept = kept + second if kept and joined and len(kept.seconds) < MOST_SECONDS else second
        self._kept = kept
        full = kept is not None and len(kept.seconds) * self.every_s >= PERIOD_S
        if kept and (full or second is None or _does_something(second)):
            post(_body(kept))
            self._kept = None


def _does_something(second: DiskReport) -> bool:
    (sample,) = second.seconds
    moved = sum(p.read_bps + p.write_bps for p in second.processes)
    return max(moved, sample.read_bps + sample.write_bps) >= _BPS or sample.io_wait >= _WAIT


def _body(report: DiskReport) -> dict[str, object]:
    now = since_boot()
    return {
        "source": report.source,
        "seconds": [[now - s.at, s.read_bps, s.write_bps, s.io_wait] for s in report.seconds],
        "processes": [astuple(p) for p in report.processes],
    }
