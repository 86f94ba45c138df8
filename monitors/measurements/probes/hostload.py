"""How busy this machine is: CPU, memory, and waiting for input and output. From ``/proc``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from monitors.measurements.probes.probe import Finding, Order, ProbeError, found

_PROC = Path("/proc")
_END_S = 0.1  # kept of the time for reading a second time
_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def cpu_times(text: str) -> dict[str, int]:
    """Ticks of all processors together by what they were used for, from ``/proc/stat``: proc(5).

    Time of guests is in that of users already. Raises ProbeError.
    """
    line = re.match(r"cpu +([0-9 ]+)$", text, re.MULTILINE)
    numbers = [int(word) for word in line[1].split()] if line else []
    if len(numbers) < 5:
        raise ProbeError("/proc/stat has no line of all processors")
    return dict(zip(_FIELDS, numbers, strict=False))


def memory(text: str) -> tuple[int, int]:
    """Bytes of memory in all, and of those that programs could still have, from ``/proc/meminfo``.

    Raises ProbeError.
    """
    found_sizes = []
    for name in ("MemTotal", "MemAvailable"):
        line = re.search(rf"^{name}: +([0-9]+) kB$", text, re.MULTILINE)
        if line is None:
            raise ProbeError(f"/proc/meminfo has no {name}")
        found_sizes.append(int(line[1]) * 1024)
    total, available = found_sizes
    if total <= 0:
        raise ProbeError("/proc/meminfo has a memory of 0 bytes")
    return total, min(available, total)


def shares(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Which part of the time between passed with what; counters of the kernel may go back.

    Raises ProbeError where no time passed.
    """
    spent = {name: max(0, after[name] - before.get(name, 0)) for name in after}
    total = sum(spent.values())
    if total <= 0:
        raise ProbeError("no tick of any processor passed")
    return {name: ticks / total for name, ticks in spent.items()}


def measure(order: Order) -> list[Finding]:
    """CPU and input/output over the time of the order, memory at its end. Raises ProbeError."""
    before = cpu_times(_text("stat"))
    order.pause(max(0.0, order.left_s - _END_S))
    if order.halt.is_set():
        raise ProbeError("the agent was stopped")
    share = shares(before, cpu_times(_text("stat")))
    total, available = memory(_text("meminfo"))
    idle, waits = share["idle"], share.get("iowait", 0.0)
    cpu = {name: round(value, 6) for name, value in share.items()}
    load = os.getloadavg()[0]
    return [
        found("cpu_use", min(1.0, max(0.0, 1 - idle - waits)), cores=os.cpu_count(), load=load,
              shares=cpu),
        found("memory_use", (total - available) / total, total_bytes=total),
        found("io_wait", waits, cores=os.cpu_count()),
    ]  # fmt: skip


def _text(name: str) -> str:
    try:
        return (_PROC / name).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ProbeError(f"/proc/{name}: {error.strerror}") from None
