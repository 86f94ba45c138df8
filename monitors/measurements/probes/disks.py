"""What hosts' disks and processes read and write each second, and who waits for disks: read by
agents, in the archive as a row per ten seconds, and as the Montage paper's Figures 6, 8, 10 and 11
show it.

``read_bytes`` and ``write_bytes`` of ``/proc/PID/io`` and, of each thread, field 42 of its ``stat``
are what iotop shows, as the Montage paper (§3) took its percent_io_wait. The kernel counts the
latter where ``kernel.task_delayacct`` is 1, of processes that began since; else the time that
anybody waited stands in, of ``/proc/pressure/io`` or ``/proc/stat``. What another user's processes
do only root may see.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from monitors.archive.outbox import Outbox
from monitors.base.measurement import Measurement
from network_provisioner.state.disks import DiskSample

_log = logging.getLogger(__name__)

DELAY = "delay"
_OFF = (
    ", the host's and not that of processes: 'sysctl kernel.task_delayacct=1' switches delay"
    " accounting on, for what begins then"
)
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own are
_TICKS = os.sysconf("SC_CLK_TCK")  # a second
_KERNEL_THREAD = 0x00200000
_AWAKE_S = 30.0
_SLICES = 10  # looks in which each of the others is looked at once

METRIC = "disk_io"
PERIOD_S = 10.0
MOST_SECONDS = 20  # of one report; what waits for longer at an agent is thrown away
MOST_PROCESSES = 20  # of a second, the busiest

BINS = 10
LEAST_WRITE_BPS = 10e6  # less is of seconds in which something was computed


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


Busy = Sequence[tuple[float, ProcessSecond]]
"""Processes that did something, with what they count for."""


class Stat(NamedTuple):
    """Of ``/proc/PID/stat``; ``started``, and what one thread ``waited`` for disks, in ticks."""

    name: str
    flags: int
    threads: int
    started: int
    waited: int


def parse_stat(text: str) -> Stat:
    """Raises ValueError, IndexError."""
    end = text.rindex(")")  # a name may have parentheses and blanks
    fields = text[end + 2 :].split()
    return Stat(text[text.index("(") + 1 : end], *(int(fields[i]) for i in (6, 17, 19, 39)))


def parse_io(text: str) -> tuple[int, int]:
    """Bytes read from and written to disks, of ``/proc/PID/io``. Raises ValueError, IndexError."""
    rows = text.splitlines()
    return int(rows[4].removeprefix("read_bytes:")), int(rows[5].removeprefix("write_bytes:"))


def parse_disks(text: str) -> dict[str, tuple[int, int]]:
    """Bytes read from and written to each block device, of ``/proc/diskstats``."""
    rows = (line.split() for line in text.splitlines())
    return {r[2]: (int(r[5]) * _SECTOR_BYTES, int(r[9]) * _SECTOR_BYTES) for r in rows}


@dataclass(frozen=True, slots=True)
class Counters:
    """Of a host at an instant: where I/O wait is from, seconds ``waited`` since boot where that is
    not delay accounting, and bytes read and written by disk."""

    at: float
    source: str
    waited: float
    disks: Mapping[str, tuple[int, int]]


@dataclass(slots=True)
class _Process:
    """What was read of a process last. ``busy_at``: when it did something last, or began, and
    ``weight`` the rate at which it moved bytes last: who only waits counts for as much."""

    started: int
    at: float
    busy_at: float
    moved: tuple[int, int] = (0, 0)
    waited: int = 0
    weight: float = 1.0


def host_second(before: Counters, after: Counters, busy: Busy) -> DiskReport:
    """What was done between two looks. I/O wait is the mean of the busy processes by their weights;
    of the host as a whole where there is no delay accounting. Where no disk can be seen, as in some
    containers, what processes did counts."""
    seconds = after.at - before.at
    for name in before.disks.keys() - after.disks.keys():
        _log.warning("disk %s has gone", name)
    known = before.disks.keys() & after.disks.keys()
    moved = [_grown(name, before.disks[name], after.disks[name]) for name in known]
    processes = sorted((p for _, p in busy), key=lambda p: -(p.read_bps + p.write_bps))
    rates = [8 * sum(both) / seconds for both in zip(*moved, strict=True)]
    rates = rates or [sum(p.read_bps for p in processes), sum(p.write_bps for p in processes)]
    if after.source == DELAY:
        waited = sum(weight * (p.io_wait or 0.0) for weight, p in busy)
        wait = waited / sum(weight for weight, _ in busy) if busy else 0.0
    else:
        wait = min(1.0, max(0.0, after.waited - before.waited) / seconds)
    sample = DiskSample(after.at, rates[0], rates[1], wait)
    return DiskReport(after.source, [sample], processes[:MOST_PROCESSES])


def _grown(what: str, old: tuple[int, int], new: tuple[int, int]) -> tuple[int, int]:
    if new[0] < old[0] or new[1] < old[1]:
        _log.warning("bytes read and written by %s went back from %s to %s", what, old, new)
    return max(0, new[0] - old[0]), max(0, new[1] - old[1])


class DiskReader:
    """Reads what counts since its last look. For one thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        belongs: Callable[[int], bool] = lambda _: True,
        root: str = "",
    ) -> None:
        """``clock`` gives the seconds that samples have; ``belongs`` says whether the process of a
        number is one of this host's, ``root`` is above ``/proc`` and ``/sys``."""
        self._clock, self._belongs = clock, belongs
        self._proc, self._sys = f"{root}/proc", f"{root}/sys"
        self._looks = 0
        self._last: Counters | None = None
        self._processes: dict[int, _Process] = {}

    def read(self) -> DiskReport | None:
        """The time since the last look, to be called once a second; None for the first, and where
        I/O wait is from elsewhere since. Raises OSError where there is no ``/proc``."""
        before, after = self._last, self._counters()
        busy = self._busy(after, before)
        self._last = after
        if before is None or before.source != after.source:
            off = "" if after.source == DELAY else _OFF
            _log.info("I/O wait is read from %s%s", after.source, off)
            return None
        return host_second(before, after, busy) if after.at > before.at else None

    def _counters(self) -> Counters:
        known = parse_disks(_text(f"{self._proc}/diskstats"))
        # Partitions, and what lies on other disks (loop, md, dm), are nobody's device.
        whole = (n for n in known if os.path.exists(f"{self._sys}/block/{n}/device"))  # noqa: PTH110
        return Counters(self._clock(), *self._waited(), {name: known[name] for name in whole})

    def _waited(self) -> tuple[str, float]:
        with suppress(OSError):
            if int(_text(f"{self._proc}/sys/kernel/task_delayacct")):
                return DELAY, 0.0
        with suppress(OSError):
            some = _text(f"{self._proc}/pressure/io").splitlines()[0]
            return "pressure", int(some.rpartition("total=")[2]) / 1e6
        return "iowait", int(_text(f"{self._proc}/stat").split(None, 6)[5]) / _TICKS

    def _busy(self, after: Counters, before: Counters | None) -> Busy:
        """Looks at all that are new or did something lately, and at some of the others."""
        self._looks += 1
        pids = [int(name) for name in os.listdir(self._proc) if name.isdecimal()]  # noqa: PTH208
        self._processes = {pid: p for pid in pids if (p := self._processes.get(pid))}
        busy: list[tuple[float, ProcessSecond]] = []
        for pid in pids:
            known = self._processes.get(pid)
            awake = known is None or after.at - known.busy_at < _AWAKE_S
            if awake or (pid + self._looks) % _SLICES == 0:
                with suppress(OSError, ValueError, IndexError):  # it ended, or is somebody else's
                    busy += self._look_at(pid, after, before)
        return busy

    def _look_at(self, pid: int, after: Counters, before: Counters | None) -> Busy:
        folder = f"{self._proc}/{pid}"
        stat = parse_stat(_text(f"{folder}/stat"))
        known = self._processes.get(pid)
        if known is None or known.started != stat.started:
            # What began since the last look counted from nothing; of what is older, who knows.
            born = (before.at, after.at) if before else (after.at, -math.inf)
            known = self._processes[pid] = _Process(stat.started, *born)
        if stat.flags & _KERNEL_THREAD or not self._belongs(pid):
            known.busy_at = -math.inf
            return []
        io, waited = parse_io(_text(f"{folder}/io")), stat.waited
        if stat.threads > 1 and after.source == DELAY:
            tasks = os.listdir(f"{folder}/task")  # noqa: PTH208
            waited = sum(parse_stat(_text(f"{folder}/task/{t}/stat")).waited for t in tasks)
        seconds = after.at - known.at
        moved = _grown(stat.name, known.moved, io)
        ticks = max(0, waited - known.waited)  # less where a thread has ended
        known.at, known.moved, known.waited = after.at, io, waited
        if seconds <= 0 or not (any(moved) or ticks):
            return []
        known.busy_at = after.at
        known.weight = sum(moved) / seconds or known.weight
        share = min(1.0, ticks / _TICKS / seconds) if after.source == DELAY else None
        read_bps, write_bps = (8 * n_bytes / seconds for n_bytes in moved)
        return [(known.weight, ProcessSecond(stat.name, pid, read_bps, write_bps, share))]


def _text(path: str) -> str:
    # A Path for each of some hundred files would take longer than to read it.
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read()


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


def io_wait_histogram(waits: Iterable[float]) -> list[float]:
    """Which share of I/O waits (0 to 1) is below 10 %, 20 %, … 100 %; zeros where there are
    none."""
    return _shares(int(wait * BINS) for wait in waits)


def write_histogram(rates_bps: Iterable[float], most_bps: float) -> list[float]:
    """Which share of write rates is in each tenth of the way to ``most_bps``, those below
    :data:`LEAST_WRITE_BPS` left out; zeros where there are none."""
    return _shares(int(r / most_bps * BINS) for r in rates_bps if r >= LEAST_WRITE_BPS)


def _shares(bins: Iterable[int]) -> list[float]:
    counts = Counter(min(bin_number, BINS - 1) for bin_number in bins)
    return [counts[i] / max(1, counts.total()) for i in range(BINS)]


def hosts_disks(rows: Iterable[Measurement]) -> list[dict[str, Any]]:
    """Of measurements ``disk_io`` (:func:`row`), by host: ``mean`` and ``p95`` of its
    seconds, and histograms of its processes' seconds: ``io_waits`` where they are known, and
    ``writes`` up to ``most_write_bps``. JSON-ready."""
    by_host: dict[str, list[Measurement]] = {}
    for row in rows:
        by_host.setdefault(row.subject, []).append(row)
    return [_host(host, by_host[host]) for host in sorted(by_host)]


def _host(host: str, rows: Sequence[Measurement]) -> dict[str, Any]:
    seconds = [second for row in rows for second in row.details["seconds"]]
    processes = [process for row in rows for process in row.details["processes"]]
    writes = [write_bps for _, _, _, write_bps, _ in processes]
    most_bps = max([LEAST_WRITE_BPS, *writes])
    return {
        "host": host,
        "seconds": len(seconds),
        "sources": sorted({row.details["source"] for row in rows}),
        "io_wait": _spread([io_wait for *_, io_wait in seconds]),
        "read_bps": _spread([read_bps for _, read_bps, _, _ in seconds]),
        "write_bps": _spread([write_bps for _, _, write_bps, _ in seconds]),
        "io_waits": io_wait_histogram(wait for *_, wait in processes if wait is not None),
        "writes": write_histogram(writes, most_bps),
        "most_write_bps": most_bps,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(values), "p95": sorted(values)[math.ceil(0.95 * len(values)) - 1]}
