"""What runs now, and what of each resource it holds (thesis §3.2, Algorithm 2: R = total - held).

A resource is a name with an amount: the workers of a site, the bandwidth of a directed link in bits
per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from network_provisioner.topology.graph import Topology
from site_selector.estimates.beliefs import PoolSite

Amounts = Mapping[str, float]


def workers_of(site: str) -> str:
    """The name of a site's workers as a resource."""
    return f"workers at {site}"


def bandwidth_of(src: str, dst: str) -> str:
    """The name of a directed link's bandwidth as a resource."""
    return f"bandwidth {src}>{dst}"


@dataclass(frozen=True, slots=True)
class Holding:
    """What a running application holds. ``layer`` is that of its network path, "" without one.
    A higher ``priority`` is more important."""

    application: str
    amounts: Amounts
    priority: int = 0
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """What runs now. ``pool``: what HTCondor says of its sites; a site that it does not name has no
    workers, unless it is none of HTCondor's: the submit host's own, or one of another ``pegasus:
    style``. ``in_use_bps`` on each directed link of ``topology``, ``use`` says in a few words what
    that is. None where nobody was asked or nobody answered."""

    pool: Mapping[str, PoolSite] | None = None
    topology: Topology | None = None
    in_use_bps: Mapping[tuple[str, str], float] = field(default_factory=dict)
    use: str = ""


IDLE = Live()
