"""Whether the network kept what it promised a transit, by what its switches counted. Pure.

    granted rate × time, bytes at each switch, what the sender's connections did ─► PromiseCheck

``kept``     as much arrived as was granted
``less``     less was sent: the sender had nothing, its window or its buffer was closed, or a disk
             was waited for
``broken``   the sender wanted more and the network did not carry it, or the bytes went another way
``unknown``  a counter or an agent is silent. That accuses nobody

Counters of switches are some tenths of a second old (:data:`LAG_S`), so a few seconds are judged
together. A sender that writes a little at a time looks busy while it is slow: only one with more
data waiting than it may send is held up by the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from network_provisioner.base.units import bits, format_rate
from network_provisioner.state.connections import Sender

KEPT, LESS, BROKEN, UNKNOWN = "kept", "less", "broken", "unknown"

LAG_S = 0.6  # how old the counters of switches are at most; Open vSwitch's are 0.5 s
ENOUGH = 0.9  # of what was granted: headers, pauses between two files
BUSY = 0.9  # share of the time that a sender has data on the way whom the network holds up
HELD = 0.1  # share of it that receiver or buffer may hold up one whom the network holds up
DISK_WAITS = 0.5  # share of the time that processes wait for a disk that is the limit
ANOTHER_WAY = 0.75  # of what arrived: who counts less did not see the rest
LOST = 0.1  # of what the first switch counted: a link that loses more did so by itself


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of a transit in ``seconds``: what it was granted (b/s), and the bytes that the
    switches of its ``path`` counted, in order, empty where one is silent. ``sender``: None where no
    agent reports its connections. ``disks``: the share of the time that was waited for a disk at
    source and destination, None where nobody says. ``repaired``: the switches that are not as they
    should be, or were not."""

    seconds: float
    granted_bps: float
    path: tuple[str, ...]
    counted: tuple[tuple[str, int], ...] = ()
    sender: Sender | None = None
    disks: tuple[float | None, float | None] = (None, None)
    repaired: frozenset[str] = frozenset()

    def link(self, place: int) -> str:
        """The link before the switch at a place among those that count."""
        at = [0, *(self.path.index(name) for name, _ in self.counted), len(self.path) - 1]
        return "-".join(self.path[at[place] : at[place + 1] + 1])


@dataclass(frozen=True, slots=True)
class PromiseCheck:
    """What became of a promise, why in words, and the link that broke it, "" where no single one is
    known. ``arrived_bps``: the least that a switch counted."""

    state: str
    why: str = ""
    link: str = ""
    arrived_bps: float = 0.0


def judge(sample: Sample) -> PromiseCheck:
    """Whether a promise was kept. Rules: see the module."""
    counted, sender = [n_bytes for _, n_bytes in sample.counted], sample.sender
    if not counted or sample.seconds <= 2 * LAG_S or sample.granted_bps <= 0:
        return PromiseCheck(UNKNOWN, "its switches report no byte counts")
    rates = [bits(n_bytes) / sample.seconds for n_bytes in counted]
    arrived = min(rates)
    lag = 1 - LAG_S / sample.seconds
    figures = f"{format_rate(arrived)} of {format_rate(sample.granted_bps)} arrived"
    if sender is not None and arrived < ANOTHER_WAY * lag * sender.acked_bps:
        link = sample.link(_first_below(rates, ANOTHER_WAY * lag * sender.acked_bps))
        went = format_rate(sender.acked_bps - arrived)
        return PromiseCheck(BROKEN, f"{figures}, {went} went another way", link, arrived)
    if arrived >= ENOUGH * lag * sample.granted_bps:
        return PromiseCheck(KEPT, "", "", arrived)
    return _less(sample, arrived, figures)


def where(link: str, path: tuple[str, ...]) -> str:
    """Where a promise was broken, in words: a link, else between which nodes of the path."""
    nodes = nodes_of(link, path)
    return (
        f"on link {'-'.join(nodes)}" if len(nodes) == 2 else f"between {nodes[0]} and {nodes[-1]}"
    )


def nodes_of(link: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes of a path that the name of a link of it stands for; of none, all."""
    places = combinations(range(len(path)), 2)
    parts = (path[first : last + 1] for first, last in places)
    return next((part for part in parts if "-".join(part) == link), path)


def lossiest(sample: Sample) -> str:
    """The link that lost more than counters can be late, "" for none."""
    worst, loss = _most_lost([n_bytes for _, n_bytes in sample.counted])
    return sample.link(worst) if loss > LAG_S / sample.seconds else ""


def _less(sample: Sample, arrived: float, figures: str) -> PromiseCheck:
    """Why less arrived than was granted."""
    counted, sender = [n_bytes for _, n_bytes in sample.counted], sample.sender
    late = LAG_S / sample.seconds
    worst, loss = _most_lost(counted)
    sent = bits(counted[0]) / sample.seconds
    if loss > LOST + late and sent >= ENOUGH * (1 - late) * sample.granted_bps:
        return PromiseCheck(BROKEN, f"{figures}, {loss:.0%} was lost", sample.link(worst), arrived)
    if sender is None:
        return PromiseCheck(
            UNKNOWN, f"{figures}, and no agent reports its connections", "", arrived
        )
    if why := _held_up(sender, sample):
        return PromiseCheck(LESS, f"{figures}: {why}", "", arrived)
    repaired = [n for n, (name, _) in enumerate(sample.counted, 1) if name in sample.repaired]
    link = lossiest(sample) or (sample.link(repaired[0]) if repaired else "")
    return PromiseCheck(BROKEN, f"{figures}, and its sender has more to send", link, arrived)


def _held_up(sender: Sender, sample: Sample) -> str:
    """What but the network holds up a sender, in words; "" for nothing."""
    reads, writes = sample.disks
    if sender.window > HELD * sender.busy:
        slow_disk = writes is not None and writes >= DISK_WAITS
        return "the receiver waits for its disk" if slow_disk else "the receiver takes no more"
    if sender.buffer > HELD * sender.busy:
        return "the sender's buffer is too small"
    if 0 < sender.paced_bps < sample.granted_bps:
        return f"its program sends {format_rate(sender.paced_bps)} at most"
    if sender.busy < BUSY or sender.waiting < BUSY:
        slow_disk = reads is not None and reads >= DISK_WAITS
        return "the sender waits for its disk" if slow_disk else "the sender has no more to send"
    return ""


def _most_lost(counted: Sequence[int]) -> tuple[int, float]:
    """The switch that misses most of what the one before it counted, by its place, and the share
    that it misses."""
    losses = [
        (max(0.0, 1 - after / before) if before else 0.0, place)
        for place, (before, after) in enumerate(pairwise(counted), 1)
    ]
    loss, place = max(losses, key=lambda at: (at[0], -at[1]), default=(0.0, 0))
    return place, loss


def _first_below(rates: Sequence[float], least: float) -> int:
    return next(place for place, rate in enumerate(rates) if rate < least)
