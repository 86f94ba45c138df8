"""Rates on a device as HTB classes, and the ``tc`` commands that lay them. Pure.

One HTB tree per device: a class of the link's capacity, under it one class for each DSCP mark and
one for best effort, which is guaranteed what is left and may take the whole link while it is idle.
Open vSwitch's userspace datapath ignores OpenFlow queues, so the class is told by the DSCP value
that the first switch sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Best effort is never starved: this share of a link is not handed out.
BEST_EFFORT_SHARE = 0.01
MIN_CLASS_BPS = 1000.0

_LINK_CLASS = "1:1"
_BEST_EFFORT_CLASS = "1:2"
# Class minors are hexadecimal; marks are 1..63, so classes are 1:101 to 1:13f.
_FIRST_MARK_CLASS = 0x100

# A segmentation-offload packet has up to 64 kB: bursts and quanta must hold one, queues several.
_MIN_BURST_BYTES = 131_072
_BURST_S = 0.004
_QUANTUM_BYTES = 70_000
_MIN_QUEUE_BYTES = 262_144
_MIN_QUEUE_S = 0.05


@dataclass(frozen=True, slots=True)
class ShapeClass:
    """Traffic marked with DSCP ``mark`` gets ``rate_bps`` and at most ``ceil_bps``."""

    mark: int
    rate_bps: float
    ceil_bps: float


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """What a switch's device should do with its egress.

    ``delay_s`` is the link's one-way delay; queues hold a round trip's worth of the capacity.
    """

    switch: str
    device: str
    capacity_bps: float
    delay_s: float
    classes: tuple[ShapeClass, ...] = ()

    @property
    def best_effort_bps(self) -> float:
        """What is guaranteed to traffic without a circuit."""
        return max(MIN_CLASS_BPS, self.capacity_bps - sum(c.rate_bps for c in self.classes))


def share_out(capacity_bps: float, asked: Sequence[tuple[float, float]]) -> list[float]:
    """The class rates for (data, acknowledgement) rates that meet on one device.

    Data comes first; acknowledgements share what is left. The sum stays below the capacity by
    BEST_EFFORT_SHARE: where data alone is guaranteed more than that, every class gives up the same
    fraction (1 % at most, as the plan admits no more than the capacity).
    """
    usable = capacity_bps * (1 - BEST_EFFORT_SHARE)
    data = sum(d for d, _ in asked)
    data_scale = min(1.0, usable / data) if data > 0 else 1.0
    acks = sum(a for _, a in asked)
    left = usable - data * data_scale
    ack_scale = min(1.0, left / acks) if acks > 0 else 1.0
    return [
        max(MIN_CLASS_BPS, d * data_scale + (a * ack_scale if ack_scale > 0 else 0.0))
        for d, a in asked
    ]


def lay(shape: DeviceShape) -> list[str]:
    """Commands that lay a device's whole tree, whatever was on it."""
    dev = shape.device
    return [
        # tc cannot replace one HTB by another; any other discipline makes place for a new one.
        f"qdisc replace dev {dev} root pfifo",
        f"qdisc replace dev {dev} root handle 1: htb default 2",
        _class(shape, "1:", _LINK_CLASS, shape.capacity_bps, shape.capacity_bps, 0),
        _best_effort(shape),
        _queue(shape, _BEST_EFFORT_CLASS),
        *(line for c in shape.classes for line in _add(shape, c)),
    ]


def grow(old: DeviceShape, new: DeviceShape) -> list[str]:
    """Commands that add and change classes, to be run before packets get the new marks."""
    before = {c.mark: c for c in old.classes}
    lines = []
    if new.best_effort_bps < old.best_effort_bps:
        lines.append(_best_effort(new))
    for c in new.classes:
        if c.mark not in before:
            lines += _add(new, c)
        elif before[c.mark] != c:
            lines.append(_marked(new, c))
    # What a class that goes away leaves is handed out by `shrink`, when it has gone.
    if before.keys() <= {c.mark for c in new.classes} and (
        new.best_effort_bps > old.best_effort_bps
    ):
        lines.append(_best_effort(new))
    return lines


def shrink(old: DeviceShape, new: DeviceShape) -> list[str]:
    """Commands that remove classes, to be run when no packet has the old marks any more."""
    kept = {c.mark for c in new.classes}
    lines = [
        line
        for c in old.classes
        if c.mark not in kept
        for line in (
            f"filter del dev {new.device} parent 1: protocol ip prio {c.mark}",
            f"class del dev {new.device} classid {_class_id(c.mark)}",
        )
    ]
    if new.best_effort_bps > old.best_effort_bps:
        lines.append(_best_effort(new))
    return lines


def clear(device: str) -> list[str]:
    """Commands that leave a device without any shaping, whatever was on it."""
    return [f"qdisc replace dev {device} root pfifo", f"qdisc del dev {device} root"]


def _class_id(mark: int) -> str:
    return f"1:{_FIRST_MARK_CLASS + mark:x}"


def _add(shape: DeviceShape, c: ShapeClass) -> list[str]:
    # The two low bits of the TOS byte are ECN and none of ours.
    return [
        _marked(shape, c),
        _queue(shape, _class_id(c.mark)),
        f"filter add dev {shape.device} parent 1: protocol ip prio {c.mark} u32 "
        f"match ip tos {c.mark << 2:#04x} 0xfc flowid {_class_id(c.mark)}",
    ]


def _marked(shape: DeviceShape, c: ShapeClass) -> str:
    return _class(shape, _LINK_CLASS, _class_id(c.mark), c.rate_bps, c.ceil_bps, 0)


def _best_effort(shape: DeviceShape) -> str:
    return _class(
        shape, _LINK_CLASS, _BEST_EFFORT_CLASS, shape.best_effort_bps, shape.capacity_bps, 1
    )


def _class(
    shape: DeviceShape, parent: str, class_id: str, rate_bps: float, ceil_bps: float, prio: int
) -> str:
    burst = max(_MIN_BURST_BYTES, round(shape.capacity_bps / 8 * _BURST_S))
    # HTB takes no prio for a class that has children.
    leaf = f" prio {prio}" if parent == _LINK_CLASS else ""
    return (
        f"class replace dev {shape.device} parent {parent} classid {class_id} htb "
        f"rate {round(rate_bps)}bit ceil {round(ceil_bps)}bit "
        f"burst {burst} cburst {burst} quantum {_QUANTUM_BYTES}{leaf}"
    )


def _queue(shape: DeviceShape, class_id: str) -> str:
    held_s = max(_MIN_QUEUE_S, 2 * shape.delay_s)
    limit = max(_MIN_QUEUE_BYTES, round(shape.capacity_bps / 8 * held_s))
    # The leaf's handle is the class minor: unique on the device, and readable.
    return (
        f"qdisc replace dev {shape.device} parent {class_id} "
        f"handle {class_id.partition(':')[2]}: bfifo limit {limit}"
    )
