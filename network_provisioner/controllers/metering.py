"""Rates kept by OpenFlow meters, which drop what exceeds them. Pure.

A meter can hold traffic down but not hold bandwidth free. So circuits on a link are held to what
fits together, and so is best effort beside them, to what they leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from network_provisioner.controllers.aids import Meter
from network_provisioner.controllers.groups import Group, Pair, by_hop
from network_provisioner.controllers.shaping import BEST_EFFORT_SHARE, MIN_CLASS_BPS
from network_provisioner.topology import Topology

# A policer that forgives too little halves TCP's rate, one that forgives too much is none: at
# 200 Mb/s a burst of 5 ms gave 119 Mb/s and one of 500 ms gave 222.
BURST_S = 0.1


def caps(topology: Topology, groups: Sequence[Group]) -> dict[str, float]:
    """The rate, in b/s, of the meter of every group with data, by its key, and of best effort on
    every link direction that circuits cross, by its :func:`hop_key`.

    A group gets its ceiling where the ceilings of all fit, otherwise less, but never less than it
    was guaranteed: on every link all give up the same part of what they may take beyond that.
    """
    crossing = by_hop(groups)
    part: dict[Pair, float] = {}
    for hop, there in crossing.items():
        usable = topology.link(*hop).capacity_bps * (1 - BEST_EFFORT_SHARE)
        sure = sum(lane.min_bps for _, lane in there)
        more = sum(_ceiling(topology, hop, lane.max_bps) - lane.min_bps for _, lane in there)
        part[hop] = min(1.0, max(0.0, (usable - sure) / more)) if more > 0 else 1.0
    rates: dict[str, float] = {}
    taken = dict.fromkeys(crossing, 0.0)
    for group in groups:
        total = 0.0
        for lane in group.lanes:
            hops = list(pairwise(lane.path))
            least = min(_ceiling(topology, hop, lane.max_bps) for hop in hops)
            extra = max(0.0, least - lane.min_bps) * min(part[hop] for hop in hops)
            for hop in hops:
                taken[hop] += lane.min_bps + extra + lane.ack_bps
            total += lane.min_bps + extra
        if group.data:
            rates[group.key] = max(MIN_CLASS_BPS, total)
    for hop, used in taken.items():
        capacity = topology.link(*hop).capacity_bps
        rates[hop_key(hop)] = max(BEST_EFFORT_SHARE * capacity, capacity - used)
    return rates


def hop_key(hop: Pair) -> str:
    """What names best effort on a link direction."""
    return f"best effort|{hop[0]}>{hop[1]}"


def meter(dpid: int, number: int, rate_bps: float) -> Meter:
    """A meter of that rate; OpenFlow counts in whole kb/s and kb."""
    kbps = max(1, round(rate_bps / 1000))
    return Meter(dpid, number, kbps, max(1, round(kbps * BURST_S)))


def _ceiling(topology: Topology, hop: Pair, max_bps: float) -> float:
    return min(max_bps, topology.link(*hop).capacity_bps)
