"""What is known to tune transfers over a path by: its state, its hosts, earlier transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitors.archive.estimates import WINDOW
from monitors.archive.knowledge import FRESH_S, LIVE_S, Source, path_metrics, path_state
from monitors.archive.measurement import Measurement, number_in
from network_provisioner.templates.advice import HostTcp, PathFigures, Tried
from network_provisioner.topology.graph import Path, way_of


def figures(source: Source, path: Path, is_default: bool, now: float) -> PathFigures:
    """Measured, else as the topology says. ``is_default``: best effort goes this way."""
    src, dst = path.nodes[0], path.nodes[-1]
    known = path_metrics(source, path.nodes, is_default, now)
    rtt = known.get("delay") or path_state(source, "rtt", src, dst, now)
    loss = known.get("loss")
    ends = [list(_newest(source, "cpu_use", site, now)) for site in (src, dst)]
    waits = [list(_newest(source, "io_wait", site, now)) for site in (src, dst)]

    def busiest(found: list[list[Measurement]]) -> float:
        return max((m.value for end in found for m in end if m.at >= now - LIVE_S), default=0.0)

    return PathFigures(
        path.capacity_bps,
        rtt.value if rtt else path.rtt_s,
        loss.value if loss else path.loss,
        _least(ends[0]),
        _least(ends[1]),
        busiest(ends),
        busiest(waits),
        tuple(_tried(source, path, now)),
        rtt is not None,
    )


def host_tcp(told: Mapping[str, Any]) -> HostTcp:
    """What an agent, or this machine, says of its TCP."""
    sizes = {name: tuple(map(int, told[name])) for name in ("rmem", "wmem")}
    most = {name: int(told[name]) for name in ("core_rmem_max", "core_wmem_max")}
    return HostTcp(**sizes, **most, congestion=str(told["congestion"]))  # type: ignore[arg-type]


def _least(hosts: list[Measurement]) -> HostTcp | None:
    """Of several hosts of a site, the one with the smallest buffers; None where nobody says."""
    said = [told for m in hosts if isinstance(told := m.details.get("tcp"), Mapping)]
    return min(map(host_tcp, said), key=lambda h: min(h.rmem[2], h.wmem[2]), default=None)


def _newest(source: Source, metric: str, site: str, now: float) -> Iterator[Measurement]:
    """Of each host of a site, where it is a day old at most."""
    for subject in source.subjects(metric):
        if subject.partition("/")[0] == site:
            rows = source.query(metric, subject, until=now, newest=True, limit=1)
            yield from (m for m in rows if m.at >= now - FRESH_S)


def _tried(source: Source, path: Path, now: float) -> Iterator[Tried]:
    subject = f"{path.nodes[0]}>{path.nodes[-1]}/{way_of(path.nodes)}"
    rows = source.query("path_throughput", subject, until=now, newest=True, limit=WINDOW)
    for row in rows:
        streams, buffer, given = (
            number_in(row.details.get(name)) for name in ("streams", "buffer_bytes", "granted_bps")
        )
        if streams and given:
            yield Tried(int(streams), int(buffer or 0), given, row.value / given)
