"""Whether a circuit is well formed. Pure."""

from __future__ import annotations

import math
from itertools import pairwise

from network_provisioner.controllers.base import Circuit
from network_provisioner.controllers.blocks import matches
from network_provisioner.errors import InputError
from network_provisioner.topology import Topology

# Each is a rule on every switch of the path, and one more for the acknowledgements.
MAX_MATCHES = 128


def ways(circuit: Circuit) -> tuple[tuple[str, ...], ...]:
    """All paths that a circuit takes at the same time."""
    return tuple(part.path for part in circuit.parts) or (circuit.path,)


def check_circuit(circuit: Circuit) -> None:
    """Raises InputError for rates, leases, flows or parts that make no sense."""
    label = f"circuit {circuit.id!r}"
    if not circuit.id:
        raise InputError("a circuit has an empty id, expected a name")
    _check_rates(label, circuit.min_bps, circuit.max_bps)
    if math.isnan(circuit.lease_until):
        raise InputError(f"{label} has no lease_until, expected Unix seconds")
    needed = sum(len(matches(flow)) for flow in circuit.flows)
    if needed > MAX_MATCHES:
        raise InputError(
            f"{label} names ports that need {needed} rules on each switch, expected at most "
            f"{MAX_MATCHES}: ranges that begin and end at round binary numbers need fewer"
        )
    if circuit.parts:
        _check_parts(circuit, label)


def check_path(topology: Topology, circuit_id: str, path: tuple[str, ...]) -> None:
    """Raises InputError for a path that is none, or that leads through a site."""
    label = f"circuit {circuit_id!r}"
    if len(path) < 3 or len(set(path)) != len(path):
        raise InputError(
            f"{label} has the path {'>'.join(path)!r}, expected two sites with switches "
            "between them and no node twice"
        )
    for end in (path[0], path[-1]):
        topology.site(end)
    for a, b in pairwise(path):
        topology.link(a, b)
    for name in path[1:-1]:
        if topology.nodes[name].kind == "site":
            raise InputError(f"{label} leads through the site {name!r}, expected switches only")


def _check_parts(circuit: Circuit, label: str) -> None:
    paths = ways(circuit)
    if circuit.path != paths[0]:
        raise InputError(f"{label} has a path that is not its first part's, expected that one")
    if len(set(paths)) != len(paths):
        raise InputError(f"{label} has two parts on one path, expected paths of their own")
    for part in circuit.parts:
        _check_rates(f"{label}, a part", part.min_bps, part.max_bps)
    # One switch deals the connections out, so all parts begin at it.
    if len({(path[:2], path[-1]) for path in paths}) > 1:
        raise InputError(
            f"{label} has parts that begin with "
            f"{' and '.join(sorted({'>'.join(path[:2]) for path in paths}))}, expected the same "
            "two sites and the same first switch"
        )


def _check_rates(label: str, min_bps: float, max_bps: float) -> None:
    if not (math.isfinite(min_bps) and min_bps >= 0):
        raise InputError(f"{label} has min_bps {min_bps!r}, expected 0 b/s or more")
    if math.isnan(max_bps) or max_bps < min_bps or max_bps <= 0:
        raise InputError(
            f"{label} has max_bps {max_bps!r}, expected more than 0 b/s and no less than "
            f"its min_bps {min_bps!r}"
        )
