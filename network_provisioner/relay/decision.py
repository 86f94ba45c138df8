"""Whether relays help a transfer, and how they carry it. Pure."""

from __future__ import annotations

from typing import Any

from network_provisioner.base.model import TransitRelay
from network_provisioner.base.units import format_size
from network_provisioner.templates.advice import PathFigures, setting_text, window_text

ENOUGH = 0.9  # of the rate: who reaches it directly needs no relay
CHUNK_BYTES = 1 << 18
_LEAST_BUFFER, _MOST_BUFFER = 1 << 20, 1 << 28


def helps(path: PathFigures, streams: int, buffer_bytes: int) -> tuple[bool, str]:
    """Whether relays help a transfer that uses so many streams of such a buffer (0: as the system
    has it), and why, with the figures. What such transfers reached goes before what is expected of
    them. Relays do not help beyond what their own buffers carry."""
    relayed = min(1.0, _MOST_BUFFER / 2 / path.under_way) if path.under_way > 0 else 1.0
    share, how = path.reached(streams, buffer_bytes), "reached"
    if share is None:
        share, how = path.expected_bps(streams, buffer_bytes) / path.rate_bps, "would reach"
    setting = setting_text(streams, buffer_bytes)
    why = f"{setting} {how} {share:.0%} directly, of {window_text(path, buffer_bytes)}"
    if share < ENOUGH and path.overfills(streams, buffer_bytes):
        why += ", more than its queue takes"
    return share < min(ENOUGH, relayed), why


def settings(path: PathFigures) -> dict[str, Any]:
    """How relays carry each connection over a path: over one of their own, with bbr, whose buffers
    hold four times what is under way. Half is the kernel's, and what follows a lost packet waits
    for it."""
    buffer_bytes = min(max(round(4 * path.under_way), _LEAST_BUFFER), _MOST_BUFFER)
    return {
        "streams": 1, "congestion": "bbr", "buffer_bytes": buffer_bytes, "chunk_bytes": CHUNK_BYTES,
    }  # fmt: skip


def relay_text(relay: TransitRelay | None) -> str:
    """:attr:`Transit.relay <network_provisioner.base.model.Transit>` in words; "" for nothing."""
    if relay is None or not relay.port:
        return f"direct: {relay.why}" if relay else ""
    many = f"{relay.streams} connections" if relay.streams > 1 else "one connection"
    return (
        f"{relay.src} and {relay.dst} carry it over {many} ({relay.congestion}, "
        f"{format_size(relay.buffer_bytes)}{', TLS' if relay.tls else ''}) to port "
        f"{relay.port}: {relay.why}"
    )
