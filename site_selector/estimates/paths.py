"""What is believed of the path between two places: Γ_a, Γ_t, and what a transfer sets up.

Γ_a     archive throughput, weighed by age and spread ─► topology: capacity minus use
        ─► site catalog adon.bandwidth ─► default
Γ_t     cost.tuned_throughput of the path's link, RTT, loss, streams and buffer
set-up  archive transfer_setup of the path ─► the median of the paths where it was measured ─► 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from network_provisioner.topology import Path, Topology
from site_selector.catalogs.entries import Site
from site_selector.cost import tuned_throughput
from site_selector.estimates.beliefs import Belief, MeasurementSource, PathBelief
from site_selector.estimates.measured import archived, rate_now

DEFAULT_BANDWIDTH_BPS = 100e6  # a campus connection; order of magnitude
DEFAULT_STREAMS = 4
DEFAULT_BUFFER_BYTES = 4 << 20  # Linux's default tcp_wmem maximum


@dataclass(frozen=True, slots=True)
class Network:
    """The topology, and what runs on each directed link of it at ``at`` (Unix second).

    ``use``: who said so, in a few words, empty where nothing is known to run.
    """

    topology: Topology | None = None
    in_use_bps: Mapping[tuple[str, str], float] | None = None
    use: str = ""

    def best_path(self, src: str, dst: str) -> tuple[Path | None, float]:
        """The path with most room (capacity minus use), and that room in bits per second."""
        topology, used = self.topology, self.in_use_bps or {}
        if topology is None or src not in topology.sites or dst not in topology.sites:
            return None, 0.0
        best: Path | None = None
        most = -1.0
        for path in topology.candidate_paths(src, dst):
            room = min(topology.link(*h).capacity_bps - used.get(h, 0.0) for h in path.hops)
            if room > most:
                best, most = path, room
        return best, max(most, 0.0)


def path_beliefs(
    sites: Mapping[str, Site],
    places: Iterable[str],
    measured: MeasurementSource,
    network: Network,
    now: float,
) -> dict[tuple[str, str], PathBelief]:
    """Beliefs of every ordered pair of ``places``, some of which may be no site of the catalog."""
    names = list(places)
    paths = {
        (a, b): _path(sites, measured, network, now, a, b) for a in names for b in names if a != b
    }
    return _with_setup(paths, measured, now)


def _path(
    sites: Mapping[str, Site],
    measured: MeasurementSource,
    network: Network,
    now: float,
    src: str,
    dst: str,
) -> PathBelief:
    best, free_bps = network.best_path(src, dst)
    hints = [(sites[s].hints, other) for s, other in ((src, dst), (dst, src)) if s in sites]
    bandwidth = next((h.bandwidth_bps[o] for h, o in hints if o in h.bandwidth_bps), None)
    rtt = next((h.rtt_s[o] for h, o in hints if o in h.rtt_s), 0.0)
    loss = next((h.loss[o] for h, o in hints if o in h.loss), 0.0)
    streams = min((h.streams for h, _ in hints if h.streams is not None), default=DEFAULT_STREAMS)
    buffer = min(
        (h.buffer_bytes for h, _ in hints if h.buffer_bytes is not None),
        default=DEFAULT_BUFFER_BYTES,
    )
    link = float("inf")
    if best is not None:
        link, rtt, loss = best.capacity_bps, best.rtt_s, best.loss
        note = "-".join(best.nodes) + (f" minus {network.use}" if network.use else "")
        written = Belief(free_bps, "topology", now, note=note)
    elif bandwidth is not None:
        written = Belief(bandwidth, "catalog")
    else:
        written = Belief(DEFAULT_BANDWIDTH_BPS, "default")
    found = measured.estimate("throughput", f"{src}>{dst}", now)
    usable = found is not None and found.value > 0
    # Where probes stand in for transfers, they say so.
    told = getattr(found, "note", "")
    gamma_a = rate_now(found, written, now, told) if found is not None and usable else written
    known, at = "topology" if best is not None else "catalog" if rtt > 0 else "default", None
    seen_rtt, seen_loss = (measured.estimate(m, f"{src}>{dst}", now) for m in ("rtt", "loss"))
    if seen_rtt is not None and seen_rtt.value > 0:
        rtt, known, at = seen_rtt.value, "archive", seen_rtt.at
    if seen_loss is not None and 0 <= seen_loss.value < 1:
        loss, known, at = seen_loss.value, "archive", seen_loss.at
    tuned = float(tuned_throughput(link, rtt, streams, buffer, loss))
    note = f"{streams} streams of {buffer / 2**20:.3g} MiB"
    note += f", RTT {rtt * 1e3:.3g} ms" if rtt > 0 else ", RTT unknown"
    note += f", loss {loss:.3g}" if loss else ""
    gamma_t = Belief(tuned, known, at, note=note)
    return PathBelief(gamma_a, gamma_t, link, rtt, streams, buffer, loss)


def _with_setup(
    paths: Mapping[tuple[str, str], PathBelief], measured: MeasurementSource, now: float
) -> dict[tuple[str, str], PathBelief]:
    """The paths with what a transfer costs beside its bytes. Mostly the stage job's own wait and
    start, it is alike on all paths: one that was never measured takes the median of the others."""
    found = {(a, b): measured.estimate("transfer_setup", f"{a}>{b}", now) for a, b in paths}
    known = sorted((m.value, pair, m) for pair, m in found.items() if m is not None)
    if not known:
        return dict(paths)
    _, (src, dst), typical = known[len(known) // 2]
    carried = archived(typical, f"measured from {src} to {dst}")
    return {
        pair: replace(path, setup=carried if m is None else archived(m))
        for (pair, path), m in zip(paths.items(), found.values(), strict=True)
    }
