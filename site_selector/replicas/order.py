"""Of several replicas, which one arrives soonest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from network_provisioner.base.units import transfer_time
from site_selector.estimates.world import PathEstimate

Paths = Mapping[tuple[str, str], PathEstimate]
"""What is assumed of paths, by (from, to)."""
Places = tuple[tuple[str, str], ...]
"""Pairs of site and URL."""


def soonest_first(
    places: Iterable[tuple[str, str]],
    site: str,
    size_bytes: float,
    paths: Paths,
) -> Places:
    """Replicas in the order in which they would arrive at ``site``: those that are there, then by
    what is assumed of the paths, then those of which no path is known, each as they arrive."""

    def seconds(place: tuple[str, str]) -> float:
        if place[0] == site:
            return -1.0
        path = paths.get((place[0], site))
        return path.start_s + transfer_time(size_bytes, path.rate_bps) if path else float("inf")

    return tuple(sorted(places, key=seconds))
