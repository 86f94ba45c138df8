"""What this host's disks do, reported each second that they do something."""

from __future__ import annotations

from collections import deque

from monitors.measurements.agent.beside import Post
from monitors.measurements.disks.periods import MOST_SECONDS, PERIOD_S
from monitors.measurements.disks.reader import DiskReader, HostSecond
from network_provisioner.base.clock import since_boot

_BPS, _WAIT = 1e6, 0.1  # less than both is nothing to be told at once


class DiskReporter:
    """Reports the seconds in which something moved or waited, and the others by ten."""

    every_s = 1.0

    def __init__(self, reader: DiskReader | None = None) -> None:
        self._reader = reader or DiskReader(since_boot)
        self._kept: deque[HostSecond] = deque(maxlen=MOST_SECONDS)

    def look(self, post: Post) -> None:
        """See :class:`~.beside.Reporter`. What the broker did not take is told again."""
        second = self._reader.read()
        if second is not None:
            self._kept.append(second)
        full = len(self._kept) * self.every_s >= PERIOD_S
        if self._kept and (full or second is None or _does_something(second)):
            post(self._report())
            self._kept.clear()

    def _report(self) -> dict[str, object]:
        now, kept = since_boot(), self._kept
        samples = [one.sample for one in kept]
        return {
            "source": kept[-1].source,
            "seconds": [[now - s.at, s.read_bps, s.write_bps, s.io_wait] for s in samples],
            "processes": [
                [p.name, p.pid, p.read_bps, p.write_bps, p.io_wait]
                for one in kept
                for p in one.processes
            ],
        }


def _does_something(second: HostSecond) -> bool:
    moved = second.sample.read_bps + second.sample.write_bps
    moved = max(moved, sum(p.read_bps + p.write_bps for p in second.processes))
    return moved >= _BPS or second.sample.io_wait >= _WAIT
