"""Ranges of ports as values under masks, which is how a switch matches them. Pure."""

from __future__ import annotations

from network_provisioner.flows import Flow, Ports

# A value and the bits of it that count.
Masked = tuple[int, int]
_ALL_BITS = 0xFFFF


def blocks(ports: Ports) -> list[Masked]:
    """The fewest aligned blocks that cover a range of ports, both ends included, in order.

    One port is one block, and 50000–51000 is eight; the worst range needs 30.
    """
    first, last = ports
    found = []
    while first <= last:
        # The largest block that begins here: as aligned as ``first``, no longer than what is left.
        size = first & -first or _ALL_BITS + 1
        while size > last - first + 1:
            size >>= 1
        found.append((first, _ALL_BITS & ~(size - 1)))
        first += size
    return found


def matches(flow: Flow) -> list[tuple[Masked | None, Masked | None]]:
    """Source and destination port of every rule that a flow needs; None matches any port."""
    sources = blocks(flow.src_ports) if flow.src_ports else [None]
    targets = blocks(flow.dst_ports) if flow.dst_ports else [None]
    return [(src, dst) for src in sources for dst in targets]


def reverse(flow: Flow) -> Flow:
    """The packets that answer a flow's."""
    return Flow(flow.protocol, flow.dst_ports, flow.src_ports)


def overlap(one: Flow, other: Flow) -> bool:
    """Whether a packet may belong to both."""
    return (
        one.protocol == other.protocol
        and _meet(one.src_ports, other.src_ports)
        and _meet(one.dst_ports, other.dst_ports)
    )


def _meet(one: Ports | None, other: Ports | None) -> bool:
    return one is None or other is None or (one[0] <= other[1] and other[0] <= one[1])
