"""The TCP connections of shadows: by their ports the switches know whose packets are whose.

A shadow serves one run, and its name is among the words it was started with. All shadows of an
access point may be reached at one port (``USE_SHARED_PORT``), so both ends count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import psutil

from condor_plugins.transfers.request_builder import Direction
from network_provisioner.base.flows import MAX_FLOWS, Flow

_SHADOW = "condor_shadow"
_JOB = re.compile(r"(\d+)\.(-?\d+)")
Number = tuple[int, int]
"""Cluster and process; the latter is below 0 where common files are sent."""
Ends = tuple[tuple[int, int], ...]
"""The ports of connections, here and at the other end."""


def open_ports(jobs: Collection[Number]) -> Mapping[Number, Ends]:
    """The connections of these jobs' shadows on this machine, as far as we may look at them."""
    found: dict[Number, Ends] = {}
    for process in psutil.process_iter(["name"]):
        if process.info["name"] != _SHADOW:
            continue
        try:
            named = map(_JOB.fullmatch, process.cmdline())
            job = next(((int(m[1]), int(m[2])) for m in named if m), None)
            if job is not None and job in jobs:
                found[job] = tuple(
                    sorted(
                        (one.laddr.port, one.raddr.port)
                        for one in process.net_connections("tcp")
                        if one.status == psutil.CONN_ESTABLISHED
                    )
                )
        except psutil.Error:  # it has ended, or is not ours to look at
            continue
    return found


def flows(ends: Ends, direction: Direction) -> list[Flow]:
    """The packets of such connections, from source to destination."""
    pairs = ends if direction == "in" else [(there, here) for here, there in ends]
    return [Flow("tcp", (src, src), (dst, dst)) for src, dst in pairs][:MAX_FLOWS]
