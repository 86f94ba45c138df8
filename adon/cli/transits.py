"""Transits as text: tables, what one waits for, and the candidates it was chosen from."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from adon.cli.output import duration, table

if TYPE_CHECKING:
    from network_provisioner.base.model import Transit


def listed(transits: list[Transit]) -> str:
    """A table."""
    from network_provisioner.base.model import LIVE
    from network_provisioner.base.units import format_rate

    now = time.time()
    rows = [
        (
            str(t.state),
            t.src,
            t.dst,
            format_rate(t.granted_bps) if t.path else "-",
            duration(max(0, round(t.lease_until - now))) if t.state in LIVE else "-",
            f"{'-'.join(t.path)} ({t.layer})" if t.path else "-",
            "/".join(filter(None, (t.user, t.project))) or "-",
            t.job or "-",
            t.id,
        )
        for t in transits
    ]
    head = ("state", "from", "to", "granted>", "lease>", "path", "for", "job", "id")
    return table(head, rows)


def print_reasons(transits: list[Transit]) -> None:
    """Why those without a path have none, and what ended otherwise than it should; where all is
    well nobody asks."""
    from network_provisioner.base.model import TransitState

    for t in transits:
        ended_ill = t.state is TransitState.EXPIRED or t.outcome not in ("", "success")
        if t.reason and (ended_ill or not t.path):
            print(f"{t.id}: {t.reason}")


def explained(transit: Transit) -> str:
    """Everything that is known of why a transit is as it is. Raises KeyError, TypeError, ValueError
    for what is no answer of a broker."""
    blocks = [
        "\n".join(_summary(transit)),
        *_waiting(transit),
        *map(_candidate, transit.candidates),
    ]
    return "\n\n".join(blocks)


def _summary(t: Transit) -> list[str]:
    from network_provisioner.base.units import format_rate

    lines = [
        listed([t]),
        f"asked for {format_rate(t.requested_bps)} to {format_rate(t.max_bps)} by template "
        f"{t.template!r} (version {t.template_version}), priority {t.priority}",
    ]
    if t.start or t.end:
        lines.append(f"from {_when(t.start) or 'now'} to {_when(t.end) or 'its end'}")
    if t.flows:
        lines.append(f"packets: {', '.join(map(_flow, t.flows))}")
    if t.queue:
        lines.append(f"shares queue {t.queue!r}")
    if len(t.parts) > 1:
        lines += [
            f"part: {'-'.join(part['path'])} ({part['layer']}), "
            f"{format_rate(part['granted_bps'])} of at least {format_rate(part['min_bps'])}"
            for part in t.parts
        ]
    if t.moves:
        lines.append(f"moved {t.moves} times to another path for one of higher priority")
    return [*lines, t.reason or "no reason was recorded"]


def _waiting(t: Transit) -> list[str]:
    from network_provisioner.base.units import format_rate

    lines = []
    if t.blocking:
        rows = [
            (
                f"  {one['link']}",
                format_rate(one["free_bps"]),
                ", ".join(map(str, one["holders"])) or "-",
            )
            for one in t.blocking
        ]
        lines = [table(("  waits for", "free>", "held by"), rows)]
    if t.earliest:
        lines.append(f"  earliest start, as far as is known: {_when(t.earliest)}")
    return ["\n".join(lines)] if lines else []


def _flow(flow: dict[str, Any]) -> str:
    sides = [
        f"{side} {'-'.join(str(p) for p in dict.fromkeys(ports))}"
        for side, key in (("from", "src_ports"), ("to", "dst_ports"))
        if (ports := flow.get(key)) is not None
    ]
    return f"{flow['protocol']} {' '.join(sides)}"


def _when(at: float) -> str:
    """Unix seconds for people, in UTC; "" for 0."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at else ""


def _candidate(found: dict[str, Any]) -> str:
    from network_provisioner.base.units import format_rate

    rows = [
        (
            f"  {name}",
            _metric(name, score["value"]),
            str(score["source"]),
            f"{score['score']:.2f}",
            f"{score['weight']:.2f}",
        )
        for name, score in found["scores"].items()
    ]
    head = (
        f"Q {found['q']:.2f}  {'-'.join(found['path'])} ({found['layer']}), "
        f"{format_rate(found['free_bps'])} free"
    )
    left_out = [f"  left out: {found['rejected']}"] if found["rejected"] else []
    scores = table(("  metric", "value>", "source", "score>", "weight>"), rows)
    return "\n".join((head, *left_out, scores))


def _metric(name: str, value: float | None) -> str:
    from network_provisioner.base.units import format_rate

    if value is None:
        return "-"
    if name == "throughput":
        return format_rate(value)
    return f"{value:g}" if name == "loss" else duration(value)
