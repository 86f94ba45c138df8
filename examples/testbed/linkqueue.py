"""The arithmetic of an emulated link, one direction: when does a packet come out, or is it lost?

A queue in front of a transmitter of ``rate_bps``, then a pipe of ``delay_s``. Time is a number that
the caller gives; nothing here reads a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from network_provisioner.base.units import bits


@dataclass(slots=True)
class LinkQueue:
    """One direction of a link.

    ``limit_bytes`` bounds what has not been sent yet; ``rate_bps`` may be infinite. All three may
    be changed between packets; what is already queued then still leaves at the old rate.

    Invariants: every packet offered is either accepted or dropped; accepted packets come out in the
    order they went in, none before ``delay_s`` and its own sending time have passed; never more
    than ``rate_bps`` leaves the transmitter.
    """

    rate_bps: float
    delay_s: float
    limit_bytes: float
    accepted: int = 0
    accepted_bytes: int = 0
    dropped: int = 0
    _sent_at: float = -math.inf
    _out_at: float = -math.inf

    def backlog_bytes(self, now: float) -> float:
        """Bytes accepted and not yet sent at ``now``."""
        if self._sent_at <= now:
            return 0.0
        return (self._sent_at - now) * self.rate_bps / bits(1)

    def offer(self, now: float, n_bytes: int) -> float | None:
        """Offer a packet of ``n_bytes``; the time it leaves the link, or None if it is dropped.

        ``now`` never goes back.
        """
        # A link that is idle takes any packet, otherwise a limit below one packet would block it.
        if self._sent_at > now and self.backlog_bytes(now) + n_bytes > self.limit_bytes:
            self.dropped += 1
            return None
        start = max(now, self._sent_at)
        self._sent_at = start + bits(n_bytes) / self.rate_bps
        # A shorter delay set at run time must not let later packets overtake earlier ones.
        self._out_at = max(self._out_at, self._sent_at + self.delay_s)
        self.accepted += 1
        self.accepted_bytes += n_bytes
        return self._out_at

    def drop(self) -> None:
        """Count a packet that was lost for another reason (loss, link down)."""
        self.dropped += 1


def wire_bytes(frame_bytes: int, segment_bytes: int, header_bytes: int) -> int:
    """Size on the wire of a frame that the kernel left unsegmented (GSO).

    ``frame_bytes`` is one set of headers and all the payload, ``segment_bytes`` the payload per
    packet on a real wire (0: not GSO), ``header_bytes`` the Ethernet, IP and TCP headers that each
    of those packets would repeat.
    """
    payload = frame_bytes - header_bytes
    if segment_bytes <= 0 or payload <= segment_bytes:
        return frame_bytes
    return payload + math.ceil(payload / segment_bytes) * header_bytes
