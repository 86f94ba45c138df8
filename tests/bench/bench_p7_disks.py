"""P7: what it costs to see each second which process reads, writes and waits for disks.

300 processes, of which ten write. The peer looks at all of them with psutil, which knows the rates
alone.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

import psutil

from monitors.measurements.agent.host_reports import DiskReporter
from tests.bench import Figure, Tell, bench

PROCESSES, WRITERS = 300, 10
SECONDS = 60
WRITER = """
import os, sys, time
with open(sys.argv[1], "wb") as file:
    while True:
        file.write(bytes(1 << 16))
        file.flush()
        os.fsync(file.fileno())
        time.sleep(0.5)
"""


@bench("P7")
def disks_each_second(tell: Tell) -> Iterable[Figure]:
    """CPU time of the agent's reports, without the request that carries them."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for number in range(PROCESSES):
            writer = [sys.executable, "-c", WRITER, f"{folder}/{number}"]
            argv = writer if number < WRITERS else ["sleep", "600"]
            process = subprocess.Popen(argv)
            stack.callback(process.wait)
            stack.callback(process.kill)
        reporter = DiskReporter()
        tell(f"{PROCESSES} processes beside {len(psutil.pids()) - PROCESSES} others, twice")
        ours = cpu_share(lambda: reporter.observe(json.dumps))
        peer = cpu_share(look_with_psutil)
    yield Figure("disks and processes each second, CPU", 100 * ours, "%", "lower", 1.0,
                 {"psutil, all processes": 100 * peer})  # fmt: skip


def cpu_share(look: Callable[[], object]) -> float:
    """Of a core, in :data:`SECONDS` looks, a second apart."""
    look()
    spent = 0.0
    for _ in range(SECONDS):
        time.sleep(1.0)
        before = time.thread_time()
        look()
        spent += time.thread_time() - before
    return spent / SECONDS


def look_with_psutil() -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            process.io_counters()
            process.name()
    psutil.disk_io_counters(perdisk=True)
