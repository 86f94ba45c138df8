"""Whether switches can tell groups of circuits apart by their ports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from network_provisioner.controllers.base import Circuit
from network_provisioner.controllers.blocks import overlap
from network_provisioner.errors import InputError
from network_provisioner.flows import Flow


def check_apart(groups: Iterable[tuple[Sequence[Flow], Circuit]]) -> None:
    """Raises InputError where two groups' flows have packets in common.

    Each group is given by its flows and one of its circuits. Those that are exactly the same are
    one group, and not to be given twice.
    """
    by_pair: dict[tuple[str, str], list[tuple[Flow, Circuit]]] = {}
    for flows, circuit in groups:
        pair = (circuit.path[0], circuit.path[-1])
        by_pair.setdefault(pair, []).extend((flow, circuit) for flow in flows)
    for named in by_pair.values():
        # Along the ports that more of them name, only neighbours can meet.
        targets = sum(flow.dst_ports is not None for flow, _ in named)
        by_target = 2 * targets >= len(named)

        def first(entry: tuple[Flow, Circuit], by_target: bool = by_target) -> int:
            ports = entry[0].dst_ports if by_target else entry[0].src_ports
            return ports[0] if ports else 0

        open_: list[tuple[int, Flow, Circuit]] = []
        for flow, circuit in sorted(named, key=first):
            begin = first((flow, circuit))
            open_ = [entry for entry in open_ if entry[0] >= begin]
            for _, other, holder in open_:
                if holder is not circuit and overlap(flow, other):
                    raise InputError(
                        f"circuits {holder.id!r} and {circuit.id!r} both name packets of "
                        f"{_words(flow)} from {circuit.path[0]} to {circuit.path[-1]}, expected "
                        "ports of its own for each, or exactly the same"
                    )
            ports = flow.dst_ports if by_target else flow.src_ports
            open_.append((ports[1] if ports else 65535, flow, circuit))


def _words(flow: Flow) -> str:
    ends = (("source", flow.src_ports), ("destination", flow.dst_ports))
    named = [f"{what} port {p[0]}–{p[1]}" for what, p in ends if p]
    return " ".join([flow.protocol, *named])
