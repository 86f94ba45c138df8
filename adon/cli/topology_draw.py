"""The network as an SVG that stands alone: nodes, and links with their load in both directions.

Each direction of a link is a line of its own, on the right-hand side as seen by who travels. From
where it begins, as much of it is coloured as is reserved of its capacity, and lighter what
transfers are granted above.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from adon import svg
from adon.cli.output import duration
from adon.cli.topology_layout import Place, places, shape
from adon.cli.topology_times import charts
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import format_rate

MOST_NODES = 300
_HOP = 250.0  # how long a link is, about
_MARGIN = 90.0
_ASIDE = 4.0  # from the middle of a link to each of its directions
_NODE = 22.0  # half the size of a node, where lines begin
_TOP = 56.0
_LEGEND = 34.0
_STYLE = """
svg { background: #fff; font-family: system-ui, sans-serif; }
text { fill: #1b1f24; font-size: 12px; }
text.title { font-size: 16px; font-weight: 600; }
text.small { fill: #56606c; font-size: 10.5px; }
text.load { fill: #1f5fc4; font-size: 10.5px; font-weight: 600; }
.site { fill: #eaf1ff; stroke: #1f5fc4; stroke-width: 1.5; }
.dmz { fill: #fff4e5; stroke: #c2640a; stroke-width: 1.5; stroke-dasharray: 5 3; }
.switch { fill: #f6f8fa; stroke: #1b1f24; stroke-width: 1.5; }
.router { fill: #f3ecfb; stroke: #8a4fcf; stroke-width: 1.5; }
.free { stroke: #d0d6dd; stroke-width: 5; }
.granted { stroke: #9dbdf5; stroke-width: 5; }
.reserved { stroke: #1f5fc4; stroke-width: 5; }
.full { stroke: #c21f3a; stroke-width: 5; }
.frame { fill: #f6f8fa; stroke: #d0d6dd; }
.held { fill: #1f5fc4; fill-opacity: 0.45; stroke: #1f5fc4; stroke-width: 0.8; }
.grid { stroke: #d0d6dd; stroke-width: 0.7; }
"""
_FULL = 0.999  # of what may be reserved


def drawing(data: Mapping[str, Any]) -> str:
    """The picture of what the broker says of its network. Raises InputError for a network that is
    too large for one."""
    nodes, links = data["nodes"], data["links"]
    if not 0 < len(nodes) <= MOST_NODES:
        raise InputError(f"{len(nodes)} nodes, expected 1 to {MOST_NODES} to draw")
    found = _on_paper(nodes, links)
    _, _, right, bottom = shape(found)
    width = max(right + _MARGIN, 640)
    over_time, high = charts(data, bottom + _MARGIN, width)
    height = bottom + _MARGIN + high + _LEGEND
    many = len(links) > 60
    parts = [svg.text(24, 32, _title(data), "title")]
    for link in links:
        parts += _link(link, found, many)
    parts += [_node(node, found[node["name"]]) for node in nodes]
    parts += over_time
    parts += _legend(height - _LEGEND / 2)
    body = "".join(f"<g>{part}</g>\n" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(_title(data), quote=True)}">\n<style>{_STYLE}</style>\n{body}</svg>\n'
    )


def _title(data: Mapping[str, Any]) -> str:
    at = data.get("at")
    when = "" if at is None else time.strftime(" on %Y-%m-%d at %H:%M:%S", time.localtime(at))
    return f"Reserved bandwidth{when}"


def _on_paper(
    nodes: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]
) -> dict[str, Place]:
    hops = places([n["name"] for n in nodes], [(link["a"], link["b"]) for link in links])
    left, top, _, _ = shape(hops)
    scale = _HOP if len(nodes) <= 60 else _HOP / 2
    return {
        name: ((x - left) * scale + _MARGIN, (y - top) * scale + _MARGIN + _TOP)
        for name, (x, y) in hops.items()
    }


def _link(link: Mapping[str, Any], found: Mapping[str, Place], many: bool) -> list[str]:
    parts = []
    for load in link["load"]:
        begin, end = _aside(found[load["from"]], found[load["to"]])
        limit = max(load["reservable_bps"], 1)
        reserved = load["reserved_bps"] / link["capacity_bps"]
        granted = max(reserved, load.get("granted_bps", 0) / link["capacity_bps"])
        inner = svg.line(*begin, *end, "free")
        for share, cls in (
            (granted, "granted"),
            (reserved, "full" if load["reserved_bps"] >= _FULL * limit else "reserved"),
        ):
            if share > 0:
                inner += svg.line(*begin, *_between(begin, end, min(share, 1)), cls)
        parts.append(f"<title>{escape(_tip(link, load))}</title>{inner}")
        if load["reserved_bps"]:
            parts.append(_along(begin, end, format_rate(load["reserved_bps"]), "load", 0.24, 14))
    if not many:
        parts.append(_described(link, found))
    return parts


def _described(link: Mapping[str, Any], found: Mapping[str, Place]) -> str:
    """What the link is, on a side where no load is written, else farther away."""
    free = [load for load in link["load"] if not load["reserved_bps"]]
    side = free[0] if free else link["load"][0]
    begin, end = found[side["from"]], found[side["to"]]
    return _along(begin, end, _words(link), "small", 0.5, 16 if free else 30)


def _words(link: Mapping[str, Any]) -> str:
    words = [str(link["layer"]).upper(), format_rate(link["capacity_bps"])]
    words += [duration(link["delay_s"])] if link["delay_s"] else []
    words += [f"VLAN {link['vlan']}"] if link.get("vlan") else []
    return " · ".join(words)


def _tip(link: Mapping[str, Any], load: Mapping[str, Any]) -> str:
    capacity, most = format_rate(link["capacity_bps"]), format_rate(load["reservable_bps"])
    words = (
        f"{load['from']} > {load['to']}: {format_rate(load['reserved_bps'])} reserved of {capacity}"
        f", {most} of which may be"
    )
    granted = load.get("granted_bps")
    words += f"; {format_rate(granted)} granted" if granted else ""
    return f"{words}; {', '.join(load['transits'])}" if load["transits"] else words


def _aside(begin: Place, end: Place) -> tuple[Place, Place]:
    """The line of one direction: beside the middle, from the rim of one node to that of the
    other."""
    (x0, y0), (x1, y1) = begin, end
    length = max(math.hypot(x1 - x0, y1 - y0), 1e-9)
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    rim = min(_NODE, length / 3)
    dx, dy = -uy * _ASIDE, ux * _ASIDE
    return (x0 + ux * rim + dx, y0 + uy * rim + dy), (x1 - ux * rim + dx, y1 - uy * rim + dy)


def _between(begin: Place, end: Place, share: float) -> Place:
    return begin[0] + (end[0] - begin[0]) * share, begin[1] + (end[1] - begin[1]) * share


def _along(begin: Place, end: Place, words: str, cls: str, share: float, away: float) -> str:
    """Words along a line, right of who travels it, and never upside down."""
    (x0, y0), (x1, y1) = begin, end
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    x, y = _between(begin, end, share)
    length = max(math.hypot(x1 - x0, y1 - y0), 1e-9)
    x, y = x - (y1 - y0) / length * away, y + (x1 - x0) / length * away
    if not -90 < angle <= 90:
        angle -= math.copysign(180, angle)
    return (
        f'<text transform="translate({x:.1f} {y:.1f}) rotate({angle:.1f})" class="{cls}" '
        f'text-anchor="middle" dominant-baseline="central">{escape(words)}</text>'
    )


def _node(node: Mapping[str, Any], place: Place) -> str:
    x, y = place
    name, kind = node["name"], node["kind"]
    dtn = f", {node['dtn']}" if node.get("dtn") else ""
    tip = f"<title>{escape(f'{kind} {name}{dtn}')}</title>"
    if kind == "site":
        half = max(_NODE, svg.text_width(name, 12) / 2 + 8)
        shape_ = svg.box(
            x - half, y - 15, 2 * half, 30, "dmz" if node.get("dmz") else "site", "", 6
        )
    elif kind == "switch":
        shape_ = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_NODE - 2:.0f}" class="switch"/>'
    else:
        ends = ((x - _NODE, y), (x, y - _NODE), (x + _NODE, y), (x, y + _NODE))
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in ends)
        shape_ = f'<polygon points="{points}" class="router"/>'
    return tip + shape_ + svg.text(x, y + 4, name, "", "middle")


def _legend(y: float) -> list[str]:
    x, parts = 24.0, []
    for cls, words in (
        ("reserved", "reserved"),
        ("full", "no more may be reserved"),
        ("granted", "granted above"),
        ("free", "free"),
    ):
        parts.append(svg.line(x, y, x + 28, y, cls) + svg.text(x + 36, y + 4, words, "small"))
        x += 52 + svg.text_width(words, 10.5)
    words = "each direction on the right-hand side of who travels it"
    return [*parts, svg.text(x, y + 4, words, "small")]
