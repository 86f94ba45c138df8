"""Host metrics as ClassAd attributes: a program for HTCondor's STARTD_CRON.

    metrics.py INTERFACE STATE-FILE [FOLDER]

prints, of the time since its last run,

    AdonIoWaitFraction           of all processor time, idle while a disk was waited for
    AdonIoWaitSustainedFraction  the same over five minutes, as load averages are
    AdonDiskReadBps, ...WriteBps bits per second of the disk that FOLDER is on
    AdonNetRxBps, AdonNetTxBps   bits per second of INTERFACE ("default": that of the default route)
    AdonLoad                     load average of one minute
    AdonMetricsAt                when all this was read, in Unix seconds
    AdonIoWait                   the first under its old name

A rate that is not known, in the first run or after a counter started anew, is left out, and so is
the disk's where FOLDER is on none (a network file system, memory).

The kernel's I/O wait is of the whole host: a share of all its processors, and nothing of one that
others keep busy. It is not the Montage paper's percent_io_wait, which iostat took of processes. One
process that does nothing but wait is 1 there and 1 / processors here, so the paper's 90 % says
nothing about it. Times the number of processors it is how many of them wait for disks.

Standard library only, and little of it, since every startd starts this again and again.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time

Counters = dict[str, float]

_SUSTAINED_S = 300.0
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own are
_RATES = {
    "AdonNetRxBps": "rx_bytes",
    "AdonNetTxBps": "tx_bytes",
    "AdonDiskReadBps": "read_bytes",
    "AdonDiskWriteBps": "written_bytes",
}


def parse_cpu(text: str) -> Counters:
    """``cpu_total`` and ``cpu_iowait`` in clock ticks out of ``/proc/stat``."""
    for line in text.splitlines():
        name, *fields = line.split()
        if name == "cpu":
            # user nice system idle iowait irq softirq steal; guest time is part of user time.
            ticks = [float(field) for field in fields[:8]]
            return {"cpu_total": sum(ticks), "cpu_iowait": ticks[4] if len(ticks) > 4 else 0.0}
    return {}


def parse_interface(text: str, interface: str) -> Counters:
    """``rx_bytes`` and ``tx_bytes`` of an interface out of ``/proc/net/dev``."""
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name.strip() == interface:
            fields = rest.split()
            return {"rx_bytes": float(fields[0]), "tx_bytes": float(fields[8])}
    return {}


def parse_disk(text: str, major: int, minor: int) -> Counters:
    """``read_bytes`` and ``written_bytes`` of a device out of ``/proc/diskstats``."""
    for line in text.splitlines():
        fields = line.split()
        if fields[:2] == [str(major), str(minor)] and len(fields) > 9:
            sectors = {"read_bytes": fields[5], "written_bytes": fields[9]}
            return {name: _SECTOR_BYTES * float(count) for name, count in sectors.items()}
    return {}


def default_interface(text: str, ipv6_text: str = "") -> str:
    """The interface of the default route out of ``/proc/net/route``, else out of
    ``/proc/net/ipv6_route``; empty if there is none."""
    rows = (line.split() for line in text.splitlines())
    ours = [row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]
    rows = (line.split() for line in ipv6_text.splitlines())
    ours += [row[9] for row in rows if len(row) > 9 and not row[0].strip("0") and row[1] == "00"]
    return next((name for name in ours if name != "lo"), "")


def _grown(before: Counters, now: Counters, counter: str) -> float | None:
    if counter not in before or counter not in now or now[counter] < before[counter]:
        return None
    return now[counter] - before[counter]


def _io_wait(before: Counters, now: Counters) -> float | None:
    ticks, waited = _grown(before, now, "cpu_total"), _grown(before, now, "cpu_iowait")
    return min(1.0, waited / ticks) if ticks and waited is not None else None


def sustained(before: Counters, now: Counters) -> Counters:
    """``io_wait_sustained``, which is part of a reading, too: it follows the I/O wait as load
    averages follow the load, from 0."""
    known = min(1.0, before.get("io_wait_sustained", 0.0))
    seconds, waited = _grown(before, now, "at"), _io_wait(before, now)
    if not seconds or waited is None:
        return {"io_wait_sustained": known}
    kept = math.exp(-seconds / _SUSTAINED_S)
    return {"io_wait_sustained": kept * known + (1 - kept) * waited}


def attributes(before: Counters, now: Counters) -> Counters:
    """ClassAd attributes of the time between two readings (each with ``at`` in Unix seconds)."""
    counters: Counters = {}
    waited = _io_wait(before, now)
    if waited is not None:
        counters["AdonIoWaitFraction"] = counters["AdonIoWait"] = waited
    if "io_wait_sustained" in now:
        counters["AdonIoWaitSustainedFraction"] = now["io_wait_sustained"]
    seconds = _grown(before, now, "at")
    for name, counter in _RATES.items():
        n_bytes = _grown(before, now, counter)
        if seconds and n_bytes is not None:
            counters[name] = 8 * n_bytes / seconds
    if "load" in now:
        counters["AdonLoad"] = now["load"]
    counters["AdonMetricsAt"] = now["at"]
    return counters


def render(values: Counters) -> str:
    """What the startd reads: one attribute a line, and a dash that ends the ad."""
    lines = [f"{name} = {value:.6f}" for name, value in sorted(values.items())]
    return "\n".join([*lines, "-", ""])


def load_state(text: str) -> Counters:
    """The last reading; nothing where the text is not one."""
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(data, dict):
        return {}
    return {k: float(v) for k, v in data.items() if isinstance(v, int | float)}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - fast start
            return file.read()
    except OSError:
        return ""


def _disk(folder: str) -> Counters:
    try:
        device = os.stat(folder).st_dev  # noqa: PTH116 - fast start
    except OSError:
        return {}
    return parse_disk(_text("/proc/diskstats"), os.major(device), os.minor(device))


def main(arguments: list[str]) -> int:
    """Read, print, and keep the reading for the next run."""
    if len(arguments) not in (2, 3):
        print("usage: metrics.py INTERFACE STATE-FILE [FOLDER]", file=sys.stderr)
        return 2
    interface, state, *folder = arguments
    if interface == "default":
        interface = default_interface(_text("/proc/net/route"), _text("/proc/net/ipv6_route"))
    now = {
        "at": time.time(),
        "load": os.getloadavg()[0],
        **parse_cpu(_text("/proc/stat")),
        **parse_interface(_text("/proc/net/dev"), interface),
        **(_disk(folder[0]) if folder else {}),
    }
    before = load_state(_text(state))
    now |= sustained(before, now)
    sys.stdout.write(render(attributes(before, now)))
    new = f"{state}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as file:  # noqa: PTH123 - fast start
        json.dump(now, file)
    os.replace(new, state)  # noqa: PTH105 - fast start
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
