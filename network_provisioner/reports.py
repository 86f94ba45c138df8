"""What is reported of a transfer when its path is given back."""

from __future__ import annotations

from dataclasses import dataclass

from network_provisioner.base.model import Transit
from network_provisioner.base.units import goodput

_USED = ("streams", "buffer_bytes", "threads", "retries")


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What became of a transfer, by whoever ran it.

    ``seconds``  it took; ``outcome`` is "success" or a word of the caller's
    ``streams``, ``buffer_bytes``, ``threads``  what it used, 0 for unknown
    ``retries``  attempts that failed
    """

    bytes: int = 0
    seconds: float = 0.0
    outcome: str = ""
    streams: int = 0
    buffer_bytes: int = 0
    threads: int = 0
    retries: int = 0

    @property
    def moved(self) -> bool:
        """Whether it says that anything was moved, or took its time."""
        return bool(self.bytes or self.seconds)

    def note(self, transit: Transit, first: bool) -> None:
        """Write it into a transit; ``first``: bytes and seconds too."""
        if first:
            transit.bytes, transit.seconds = self.bytes, self.seconds
            transit.goodput_bps = goodput(self.bytes, self.seconds)
        for name in _USED:
            setattr(transit, name, getattr(self, name) or getattr(transit, name))
        if self.outcome:
            transit.outcome = self.outcome
            if self.outcome != "success":
                transit.reason += f"; the transfer ended with {self.outcome!r}"
