"""The TCP connections of shadows: by their ports the switches know whose packets are whose.

A shadow serves one run, and its name is among the words it was started with. All shadows of an
access point may be reached at one port (``USE_SHARED_PORT``), so both ends count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress

from monitors.watcher.connections import Ends, Tables, processes

_SHADOW = "condor_shadow"
_JOB = re.compile(r"(\d+)\.(-?\d+)")
Number = tuple[int, int]
"""Cluster and process; the latter is below 0 where common files are sent."""


def open_ports(jobs: Collection[Number]) -> Mapping[Number, tuple[Ends, ...]]:
    """The connections of these jobs' shadows on this machine, as far as we may look at them."""
    found: dict[Number, tuple[Ends, ...]] = {}
    tables = Tables()
    for process in processes():
        with suppress(OSError):  # it has ended
            if (process / "comm").read_text() != f"{_SHADOW}\n":
                continue
            words = (process / "cmdline").read_text().split("\0")
            job = next(((int(m[1]), int(m[2])) for m in map(_JOB.fullmatch, words) if m), None)
            if job is not None and job in jobs:
                found[job] = tuple(sorted(one.ends for one in tables.connections(process)))
    return found
