"""A transfer into a disk of a chosen speed, whose bandwidth a broker has follow it. Runs in a box.

::

    sender ══ real switches ══► receiver ─► disk
                  │ bytes                     │ I/O wait
                  └──────────► broker ◄───────┘
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ovs_rig import OvsRig, load, sink

from examples.soykb.scenario import LAYOUT
from examples.testbed.disks import Disk
from monitors.measurements.probes.disks import DiskReader
from network_provisioner.base.model import Transit, TransitRequest
from network_provisioner.base.units import BITS_PER_BYTE
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict

TEMPLATE = {
    "qspec": {"min_throughput": "1 Mb/s"},
    "rspec": {"max_throughput": "10 Gb/s"},
    "break_even": 0,
    "io_aware": True,
}
DISK_BYTES = 300_000_000
_PORT = 5001


class DiskRig:
    """A transfer from mu to tacc that goes on and on, and the broker that serves it."""

    def __init__(self, rig: OvsRig, disk: Disk, folder: Path) -> None:
        self.disk = disk
        self.broker = Broker(
            rig.topology,
            templates_from_dict({"mosaic": TEMPLATE}),
            rig.openflow,
            SqliteStore(folder / "state.sqlite"),
        )
        self.wait_for = rig.wait_for
        self.over = threading.Event()
        self.bytes_of = rig.controller.circuit_bytes

    def ask(self, max_bps: float) -> Transit:
        """The transit of the transfer."""
        request = TransitRequest("a", "mu", "tacc", template="mosaic", max_bps=max_bps)
        return self.broker.request(request)

    def get(self) -> Transit:
        """It as it is now."""
        return self.broker.get("a")

    def until(self, check: Callable[[], bool], most_s: float) -> float:
        """Seconds until something is so; infinite where it is not within ``most_s``."""
        begin = time.monotonic()
        while not check():
            if time.monotonic() - begin > most_s:
                return math.inf
            time.sleep(0.05)
        return time.monotonic() - begin

    def goodput(self, seconds: float) -> float:
        """Bits per second as switches count them, meanwhile."""
        moments = []
        for _ in range(2):
            before = self.bytes_of("a")
            self.until(lambda seen=before: self.bytes_of("a") > seen, seconds)  # type: ignore[misc]
            moments.append((self.bytes_of("a"), time.monotonic()))
            time.sleep(seconds)
        (first, begin), (last, end) = moments
        return (last - first) * BITS_PER_BYTE / (end - begin)

    def follow(self) -> None:
        """What a broker's service does, until it is over."""
        reader, until = DiskReader(), 0.0
        while not self.over.wait(0.1):
            ended = self.broker.io_aware.count()
            if time.monotonic() >= until:
                until, ended = time.monotonic() + 1.0, True
                report = reader.read()
                if report is not None:
                    self.broker.disks("tacc/dtn1", report.seconds, report.source)
            if ended:
                self.broker.sweep()


@contextlib.contextmanager
def delay_accounting() -> Iterator[None]:
    """Switched on for what begins meanwhile."""
    file = Path("/proc/sys/kernel/task_delayacct")
    before = file.read_text()
    file.write_text("1")
    try:
        yield
    finally:
        file.write_text(before)


@contextlib.contextmanager
def transfer_into(rig: OvsRig, folder: Path, rate_bps: float, max_bps: float) -> Iterator[DiskRig]:
    """A transfer of at most ``max_bps`` into a disk of a rate, and a broker that serves it."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(delay_accounting())
        disk = stack.enter_context(Disk(folder / "disk", DISK_BYTES, rate_bps))
        made = DiskRig(rig, disk, folder)
        made.broker.start(60.0)
        stack.callback(made.broker.stop)
        made.ask(max_bps)
        stack.enter_context(sink("tacc", _PORT, disk.path / "file"))
        thread = threading.Thread(target=made.follow)
        sender = load("mu", "send", LAYOUT.host("tacc").address, _PORT, 1, 3600)
        stack.callback(sender.wait)
        stack.callback(sender.kill)
        thread.start()
        stack.callback(thread.join)
        stack.callback(made.over.set)
        yield made
