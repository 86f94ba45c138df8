"""What is reported of a transfer when its path is given back, and whether it can be.

Whoever may ask for a path may claim anything of its transfer. What no network can have done is kept
as claimed and marked: templates, archive and accounts do not believe it.
"""

from __future__ import annotations

from dataclasses import dataclass

from network_provisioner.base.model import Transit
from network_provisioner.base.units import bytes_of, format_rate, format_size, goodput

_SLACK_S = 300.0  # transfers that began before their path was asked for
_SLACK_BYTES = 1 << 24  # buffers on the way
_SLACK = 1.25  # bursts, and how others count headers
_WHOLE_S = 1.0  # some tools tell no less
_UNCOUNTED = 10  # what went before its path was there, or was counted for who shared its rules
_USED = ("streams", "buffer_bytes", "threads", "retries", "files")


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What became of a transfer, by whoever ran it.

    ``seconds``  it took; ``outcome`` is "success" or a word of the caller's
    ``streams``, ``buffer_bytes``, ``threads``  what it used, 0 for unknown
    ``retries``  attempts that failed; ``files``: how many it moved, 0 for unknown
    ``note``     why it was slow, in words
    """

    bytes: int = 0
    seconds: float = 0.0
    outcome: str = ""
    streams: int = 0
    buffer_bytes: int = 0
    threads: int = 0
    retries: int = 0
    files: int = 0
    note: str = ""

    @property
    def has_transfer(self) -> bool:
        """Whether it says that anything was moved, or took its time."""
        return bool(self.bytes or self.seconds)

    def write_into(self, transit: Transit, first: bool, most_bps: float, now: float) -> None:
        """Write it into a transit; ``first``: bytes and seconds too. ``most_bps`` is the largest
        rate that the network carries between its sites; ``now`` Unix seconds."""
        if first:
            transit.usage.bytes, transit.usage.seconds = self.bytes, self.seconds
            transit.usage.goodput_bps = goodput(self.bytes, self.seconds)
            mark(transit, _impossible(transit, most_bps, now))
            transit.reason += f"; {self.note}" if self.note else ""
        for name in _USED:
            setattr(transit.usage, name, getattr(self, name) or getattr(transit.usage, name))
        if self.outcome:
            transit.usage.outcome = self.outcome
            if self.outcome != "success":
                transit.reason += f"; the transfer ended with {self.outcome!r}"


def mark(transit: Transit, doubt: str) -> None:
    """Mark what was reported of a transit as doubtful, where there is a doubt."""
    if doubt:
        transit.usage.doubt, transit.usage.goodput_bps = doubt, 0.0


def count_mismatch(transit: Transit) -> str:
    """Why the switches, which counted while it held its path, contradict its report, in words; ""
    where they do not, or cannot say."""
    counted = transit.usage.switch_bytes
    if not counted or transit.usage.bytes <= counted * _UNCOUNTED + _SLACK_BYTES:
        return ""
    return (
        f"reported {format_size(transit.usage.bytes)}, the switches counted {format_size(counted)}"
    )


def _impossible(transit: Transit, most_bps: float, now: float) -> str:
    held_s = now - transit.request.requested_at
    if transit.grant.installed_at and transit.usage.seconds > held_s + _SLACK_S:
        return f"reported {transit.usage.seconds:.3g} s, {held_s:.3g} s after it was asked for"
    took_s = transit.usage.seconds or held_s + _SLACK_S
    most = bytes_of(most_bps) * (took_s + _WHOLE_S) * _SLACK + _SLACK_BYTES
    no_rate = transit.usage.bytes and transit.usage.seconds and not transit.usage.goodput_bps
    if transit.usage.bytes > most or no_rate:
        return (
            f"reported {format_size(transit.usage.bytes)} in {took_s:.3g} s, the network carries "
            f"at most {format_rate(most_bps)} there"
        )
    return ""
