"""What happens in Figure 18 of the thesis (§5.2), scaled to the testbed, and its telling.

There Internet2's AL2S carries 5.5 Gb/s and the routed network 650 Mb/s. Here L2 carries 200 Mb/s
and L3 20 Mb/s, nine tenths of which can be reserved: the thesis's rates times 0.03.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from network_provisioner.base.flows import Flow
from network_provisioner.base.model import ENDED, ON_SWITCHES, Transit, TransitRequest
from network_provisioner.base.units import format_rate, goodput
from network_provisioner.broker import Broker

SCALE = 0.03
SRC, DST = "mu", "tacc"
TICK_S = 0.5
LATEST_S = 180.0  # a story that is not over by then will not end

TEMPLATES: dict[str, Any] = {
    "soykb": {
        "qspec": {"min_throughput": 600e6 * SCALE},
        "rspec": {"max_throughput": 6000e6 * SCALE},
        "priority": 5,
        "patience": "10 min",
    },
    "neuroblastoma": {
        "qspec": {"min_throughput": 5500e6 * SCALE},
        "rspec": {"max_throughput": 5500e6 * SCALE},
        "priority": 9,
        "patience": "10 min",
    },
}


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer that starts ``at_s`` seconds into the story, once ``after`` is over where that is
    named, and needs at least ``min_bps``.

    ``port`` is the TCP port it is received on, which is how the switches know its packets.
    """

    name: str
    title: str
    template: str
    at_s: float
    min_bps: float
    size_bytes: int
    port: int
    after: str = ""

    def request(self) -> TransitRequest:
        """What it asks the broker for."""
        return TransitRequest(
            id=self.name,
            src=SRC,
            dst=DST,
            size_bytes=self.size_bytes,
            min_bps=self.min_bps,
            template=self.template,
            project=self.template,
            flows=(Flow("tcp", None, (self.port, self.port)),),
        )


TRANSFERS = (
    # t2 is the end of the first; Neuroblastoma and the second SoyKB run beside each other.
    Transfer("t1", "SoyKB, at least 700 Mb/s there", "soykb", 3, 700e6 * SCALE, 180_000_000, 5101),
    Transfer(
        "t3",
        "Neuroblastoma, 5.5 Gb/s there",
        "neuroblastoma",
        18,
        5500e6 * SCALE,
        360_000_000,
        5103,
        after="t1",
    ),
    Transfer("t4", "SoyKB, at least 600 Mb/s there", "soykb", 22, 600e6 * SCALE, 45_000_000, 5104),
    Transfer("t6", "SoyKB, at least 700 Mb/s there", "soykb", 28, 700e6 * SCALE, 120_000_000, 5106),
)


class World(Protocol):
    """Where the transfers run, and the clock they run by (seconds since the story began)."""

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def start(self, transfer: Transfer) -> None:
        """Begin to send."""
        ...

    def finished(self, transfer: Transfer) -> bool:
        """Whether all bytes have arrived."""
        ...

    def moved(self, transfer: Transfer) -> int:
        """Bytes on their way so far, as the network counts them."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """At ``at_s``: bits per second of each running transfer since the last sample, and what can
    still be reserved on the L2 and the L3 path."""

    at_s: float
    rates: dict[str, float]
    free: dict[str, float]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, as text; ``mark`` is the thesis's name for the moment."""

    at_s: float
    mark: str
    text: str
    layer: str = ""


@dataclass
class Story:
    """What was seen. ``layers`` says which path each transfer took."""

    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)


def tell(broker: Broker, world: World, say: Callable[[Event], None]) -> Story:
    """Run all transfers to their end and keep what was seen. Raises TimeoutError."""
    story = Story()
    waiting: dict[str, Transfer] = {}
    running: dict[str, Transfer] = {}
    begun: dict[str, float] = {}
    counted: dict[str, tuple[float, int]] = {}
    coming = list(TRANSFERS)

    def note(mark: str, text: str, layer: str = "") -> None:
        event = Event(round(world.elapsed(), 2), mark, text, layer)
        story.events.append(event)
        say(event)

    def begin(transfer: Transfer, transit: Transit) -> None:
        running[transfer.name] = transfer
        begun[transfer.name] = world.elapsed()
        counted[transfer.name] = (world.elapsed(), 0)
        story.layers[transfer.name] = transit.grant.layer
        world.start(transfer)

    while coming or waiting or running:
        if world.elapsed() > LATEST_S:
            raise TimeoutError(f"not over after {LATEST_S:g} s: {[*waiting, *running]}")
        while (
            coming
            and coming[0].at_s <= world.elapsed()
            and coming[0].after not in (*running, *waiting)
        ):
            transfer = coming.pop(0)
            transit = broker.request(transfer.request())
            if transit.state in ON_SWITCHES:
                note(transfer.name, f"{transfer.title}: {_got(transit)}", transit.grant.layer)
                begin(transfer, transit)
            elif transit.state in ENDED:
                raise TimeoutError(f"{transfer.name} got no path: {transit.reason}")
            else:
                note(transfer.name, f"{transfer.title}: waits. {transit.reason}")
                waiting[transfer.name] = transfer
        for transfer in list(running.values()):
            if world.finished(transfer):
                seconds = world.elapsed() - begun[transfer.name]
                broker.release(transfer.name, transfer.size_bytes, seconds, "success")
                del running[transfer.name]
                story.spans[transfer.name] = (begun[transfer.name], world.elapsed())
                rate = format_rate(goodput(transfer.size_bytes, seconds))
                mark = "t2" if transfer.name == "t1" else ""
                note(mark, f"{transfer.name} ends: {seconds:.0f} s, {rate} on average")
        broker.sweep()
        for transfer in list(waiting.values()):
            transit = broker.get(transfer.name)
            if transit.state in ON_SWITCHES:
                del waiting[transfer.name]
                note("", f"{transfer.name} starts by itself: {_got(transit)}", transit.grant.layer)
                begin(transfer, transit)
        story.samples.append(_sample(broker, world, running, counted))
        world.wait(TICK_S)
    return story


def _got(transit: Transit) -> str:
    path = f"{transit.grant.layer.upper()} ({'-'.join(transit.grant.path)})"
    return f"{path}, {format_rate(transit.grant.granted_bps)} granted. {transit.reason}"


def _sample(
    broker: Broker,
    world: World,
    running: dict[str, Transfer],
    counted: dict[str, tuple[float, int]],
) -> Sample:
    now = world.elapsed()
    rates = {}
    for name, transfer in running.items():
        before, bytes_before = counted[name]
        moved_bytes = world.moved(transfer)
        # A switch brings its counters up to date now and then: no news is no standstill.
        if now - before >= 2 * TICK_S and moved_bytes > bytes_before:
            rates[name] = goodput(moved_bytes - bytes_before, now - before)
            counted[name] = (now, moved_bytes)
    free = {}
    for link in broker.describe_topology()["links"]:
        if link["layer"] in ("l2", "l3"):
            ahead = link["load"][0]
            free[link["layer"]] = ahead["reservable_bps"] - ahead["reserved_bps"]
    return Sample(round(now, 2), rates, free)
