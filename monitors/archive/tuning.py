"""What is known to tune transfers over a path by: its state, its hosts, earlier transfers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from monitors.archive.knowledge import FRESH_S, LIVE_S, Source, path_metrics, path_state
from monitors.base.estimates import WINDOW
from monitors.base.measurement import Measurement, number_in
from network_provisioner.base.errors import printable
from network_provisioner.templates.advice import HostTcp, PathFigures, TriedSetting
from network_provisioner.topology.graph import Path, way_of


def figures(source: Source, path: Path, is_default: bool, now: float) -> PathFigures:
    """Measured, else as the topology says. ``is_default``: best effort goes this way."""
    src, dst = path.nodes[0], path.nodes[-1]
    known = path_metrics(source, path.nodes, is_default, now)
    rtt = known.get("delay") or path_state(source, "rtt", src, dst, now)
    loss = known.get("loss")

    def hosts(site: str, *metrics: str) -> list[Measurement]:
        return [
            measurement for metric in metrics for measurement in _newest(source, metric, site, now)
        ]

    def busiest(*metrics: str) -> float:
        loads = hosts(src, *metrics) + hosts(dst, *metrics)
        return max((load.value for load in loads if load.at >= now - LIVE_S), default=0.0)

    return PathFigures(
        path.capacity_bps,
        rtt.value if rtt else path.rtt_s,
        loss.value if loss else path.loss,
        _least(hosts(src, "cpu_use")),
        _least(hosts(dst, "cpu_use")),
        busiest("cpu_use"),
        busiest("io_wait", "disk_io"),
        tuple(_tried(source, path, now)),
        rtt is not None,
    )


def host_tcp(details: Any) -> HostTcp | None:
    """What an agent, or this machine, says of its TCP; None where it says something else."""
    try:
        (a, b, c), (d, e, f) = (map(int, details[name]) for name in ("rmem", "wmem"))
        most = [int(details[name]) for name in ("core_rmem_max", "core_wmem_max")]
        congestion = printable(str(details["congestion"]))[:16]
        return HostTcp((a, b, c), (d, e, f), most[0], most[1], congestion)
    except (KeyError, TypeError, ValueError):
        return None


def _least(hosts: list[Measurement]) -> HostTcp | None:
    """Of several hosts of a site, the one with the smallest buffers; None where nobody says."""
    settings = [tcp for m in hosts if (tcp := host_tcp(m.details.get("tcp")))]
    return min(settings, key=lambda host: min(host.rmem[2], host.wmem[2]), default=None)


def _newest(source: Source, metric: str, site: str, now: float) -> Iterator[Measurement]:
    """Of each host of a site, where it is a day old at most."""
    for subject in source.subjects(metric):
        if subject.partition("/")[0] == site:
            rows = source.query(metric, subject, until=now, newest=True, limit=1)
            yield from (m for m in rows if m.at >= now - FRESH_S)


def _tried(source: Source, path: Path, now: float) -> Iterator[TriedSetting]:
    subject = f"{path.nodes[0]}>{path.nodes[-1]}/{way_of(path.nodes)}"
    rows = source.query("path_throughput", subject, until=now, newest=True, limit=WINDOW)
    for row in rows:
        streams, buffer, given = (
            number_in(row.details.get(name)) for name in ("streams", "buffer_bytes", "granted_bps")
        )
        if streams and given:
            yield TriedSetting(int(streams), int(buffer or 0), given, row.value / given)
