"""How busy this machine is: CPU, memory, and waiting for input and output; how much space a disk
has; and what its system allows TCP connections."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from monitors.measurements.probes.probe import ProbeError, ProbeRequest, Reading, reading

_END_S = 0.1  # kept of the time for reading a second time
_LEAST_S = 0.05  # some ticks of the processors, also where a busy machine began late
_NET = Path("/proc/sys/net")
_GUESTS = ("guest", "guest_nice")  # their time is in that of users already


def shares(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Which part of the time between passed with what; counters of the kernel may go back.

    Raises ProbeError where no time passed.
    """
    spent = {name: max(0.0, after[name] - before[name]) for name in after if name not in _GUESTS}
    total = sum(spent.values())
    if total <= 0:
        raise ProbeError("no tick of any processor passed")
    return {name: seconds / total for name, seconds in spent.items()}


def tcp_limits(net: Path = _NET) -> dict[str, Any]:
    """Buffers (bytes; 0 for what a container does not show) and congestion control; none of it
    where the system is no Linux."""
    core = {"core_rmem_max": 0, "core_wmem_max": 0}
    for name in core:
        with suppress(OSError):
            core[name] = int((net / "core" / name.removeprefix("core_")).read_text())
    try:
        sizes = {
            name: [int(size) for size in (net / f"ipv4/tcp_{name}").read_text().split()]
            for name in ("rmem", "wmem")
        }
        congestion = (net / "ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return {}
    return {**sizes, **core, "congestion": congestion}


def free_space(folder: str) -> Reading:
    """What a user without privileges may still write where ``folder`` is. Raises ProbeError."""
    try:
        disk = psutil.disk_usage(folder)
    except OSError as error:
        raise ProbeError(f"{folder}: {error.strerror}, expected a folder to measure") from None
    return reading("free_space", float(disk.free), folder=folder, total_bytes=disk.total)


def measure(order: ProbeRequest) -> list[Reading]:
    """CPU and input/output over the time of the order, memory and free space at its end. Raises
    ProbeError."""
    before = psutil.cpu_times()._asdict()
    order.halt.wait(max(_LEAST_S, order.left_s - _END_S))
    order.halt.check()
    share = shares(before, psutil.cpu_times()._asdict())
    memory = psutil.virtual_memory()
    idle, waits = share["idle"], share.get("iowait", 0.0)
    cpu = {name: round(value, 6) for name, value in share.items()}
    load = os.getloadavg()[0]
    return [
        reading("cpu_use", min(1.0, max(0.0, 1 - idle - waits)), cores=os.cpu_count(), load=load,
              shares=cpu, tcp=tcp_limits()),
        reading("memory_use", 1 - memory.available / memory.total, total_bytes=memory.total),
        reading("io_wait", waits, cores=os.cpu_count()),
        *([free_space(folder)] if (folder := order.options.get("folder")) else []),
    ]  # fmt: skip
