"""Rates on a device as a tree of classes. What lays it is a :class:`Shaper`.

::

    the link ─┬─ best effort                   what is left, and all that is idle
              ├─ a mark                        a circuit's guaranteed rate and ceiling
              └─ a queue ─┬─ its own mark      members that are guaranteed nothing
                          ├─ a mark            a member's guaranteed rate, out of the queue's
                          └─ another queue …

Open vSwitch's userspace datapath ignores OpenFlow queues, so a class is told by the DSCP value that
the first switch sets.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from network_provisioner.base.controller import ControllerError, Queue
from network_provisioner.base.errors import InputError, MissingError
from network_provisioner.topology.graph import Topology

# Best effort is never starved: this share of a link is not handed out.
BEST_EFFORT_SHARE = 0.01
MIN_CLASS_BPS = 1000.0
# Idle bandwidth is offered in this order, 7 last: HTB knows eight priorities.
FIRST_PRIO, LAST_PRIO = 0, 7
# HTB nests eight deep (TC_HTB_MAXDEPTH); the link and the leaves take two.
MAX_QUEUE_DEPTH = 6
_PACKAGES = {"ovs-vsctl": "openvswitch-switch"}


@dataclass(frozen=True, slots=True)
class ClassDemand:
    """What the traffic with DSCP ``mark`` asks of a device.

    ``queue`` names the queue it belongs to there, "" for none. ``shared``: it is what the queue's
    members share that are guaranteed nothing. ``prio`` counts where it is in no queue.
    """

    mark: int
    data_bps: float
    ack_bps: float
    ceil_bps: float
    queue: str = ""
    shared: bool = False
    prio: int = FIRST_PRIO


@dataclass(frozen=True, slots=True)
class ShapeClass:
    """Traffic marked with DSCP ``mark`` gets ``rate_bps`` and at most ``ceil_bps``.

    ``queue`` is the queue it is served out of, "" for the link. ``weight`` is its part of what is
    idle, relative to others of its ``prio``.
    """

    mark: int
    rate_bps: float
    ceil_bps: float
    queue: str = ""
    prio: int = FIRST_PRIO
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class QueueClass:
    """A :class:`~network_provisioner.base.controller.Queue` as its device keeps it."""

    name: str
    parent: str
    rate_bps: float
    ceil_bps: float


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """What a switch's device should do with its egress.

    ``delay_s`` is the link's one-way delay; packet queues hold a round trip's worth of the
    capacity. ``queues`` come parents first.
    """

    switch: str
    device: str
    capacity_bps: float
    delay_s: float
    classes: tuple[ShapeClass, ...] = ()
    queues: tuple[QueueClass, ...] = ()

    @property
    def best_effort_bps(self) -> float:
        """What is guaranteed to traffic without a circuit."""
        given = sum(c.rate_bps for c in self.classes if not c.queue)
        given += sum(q.rate_bps for q in self.queues if not q.parent)
        return max(MIN_CLASS_BPS, self.capacity_bps - given)


def share_out(
    capacity_bps: float, demands: Sequence[ClassDemand], queues: Sequence[Queue] = ()
) -> tuple[tuple[ShapeClass, ...], tuple[QueueClass, ...]]:
    """The classes and queues of one device.

    Guaranteed data rates come first, in a queue or not; then acknowledgements; then what queues
    were promised beyond what their members are guaranteed. The sum stays below the capacity by
    BEST_EFFORT_SHARE: where data alone is guaranteed more than that, every class gives up the same
    fraction (1 % at most, as the plan admits no more than the capacity). A queue that was promised
    less than its members are guaranteed gets what they need.
    """
    by_name = {queue.name: queue for queue in queues}
    ordered = sorted(queues, key=lambda q: (_depth(q, by_name), q.name))  # parents first
    usable = capacity_bps * (1 - BEST_EFFORT_SHARE)
    data = _fraction(usable, sum(a.data_bps for a in demands))
    left = usable - data * sum(a.data_bps for a in demands)
    acks = _fraction(left, sum(a.ack_bps for a in demands))
    left -= acks * sum(a.ack_bps for a in demands)
    sure = {a.mark: data * a.data_bps + acks * a.ack_bps for a in demands}

    needs = {q.name: sum(sure[a.mark] for a in demands if a.queue == q.name) for q in ordered}
    for q in reversed(ordered):
        if q.parent:
            needs[q.parent] += needs[q.name]
    rates: dict[str, float] = {}
    spare: dict[str, float] = {"": left}
    for parent in ("", *(q.name for q in ordered)):
        inside = [q for q in ordered if q.parent == parent]
        wants = {q.name: max(0.0, q.rate_bps - needs[q.name]) for q in inside}
        part = _fraction(spare[parent], sum(wants.values()))
        for q in inside:
            spare[q.name] = part * wants[q.name]
            rates[q.name] = needs[q.name] + spare[q.name]
            spare[parent] -= spare[q.name]
    ceilings: dict[str, float] = {"": capacity_bps}
    for q in ordered:
        ceilings[q.name] = max(rates[q.name], min(q.ceil_bps, ceilings[q.parent]), MIN_CLASS_BPS)

    prios = _ranks(queues)
    classes = []
    for a in demands:
        rate = sure[a.mark] + (spare[a.queue] if a.shared else 0.0)
        rate = max(MIN_CLASS_BPS, rate)
        ceil = max(rate, min(a.ceil_bps, ceilings[a.queue]))
        prio = prios.get(a.queue, a.prio)
        classes.append(ShapeClass(a.mark, rate, ceil, a.queue, prio, rate if a.queue else 1.0))
    return (
        tuple(classes),
        tuple(
            QueueClass(q.name, q.parent, max(MIN_CLASS_BPS, rates[q.name]), ceilings[q.name])
            for q in ordered
        ),
    )


def _fraction(there_bps: float, wanted_bps: float) -> float:
    """The part of what is wanted that is there, 1 where all of it is."""
    return min(1.0, max(0.0, there_bps) / wanted_bps) if wanted_bps > 0 else 1.0


def _ranks(queues: Iterable[Queue]) -> dict[str, int]:
    """The queues' priorities as HTB's, in the same order, above best effort's."""
    ranked = {prio: i for i, prio in enumerate(sorted({q.prio for q in queues}))}
    return {q.name: min(FIRST_PRIO + ranked[q.prio], LAST_PRIO - 1) for q in queues}


def check_queues(topology: Topology, queues: Iterable[Queue]) -> None:
    """Raises InputError for queues that make no sense, or that form no tree on their link."""
    by_hop: dict[tuple[str, str], dict[str, Queue]] = {}
    for queue in queues:
        where = f"on link {'>'.join(queue.hop)}"
        label = f"queue {queue.name!r} {where}"
        topology.link(*queue.hop)
        if not queue.name:
            raise InputError(f"a queue {where} has no name, expected one")
        if not (math.isfinite(queue.rate_bps) and queue.rate_bps >= 0):
            raise InputError(f"{label} has rate_bps {queue.rate_bps!r}, expected 0 b/s or more")
        if math.isnan(queue.ceil_bps) or queue.ceil_bps < queue.rate_bps or queue.ceil_bps <= 0:
            raise InputError(
                f"{label} has ceil_bps {queue.ceil_bps!r}, expected more than 0 b/s and no less "
                f"than its rate_bps {queue.rate_bps!r}"
            )
        by_name = by_hop.setdefault(queue.hop, {})
        if queue.name in by_name:
            raise InputError(f"{label} is listed twice, expected one of each name on a link")
        by_name[queue.name] = queue
    for hop, by_name in by_hop.items():
        for queue in by_name.values():
            label = f"queue {queue.name!r} on link {'>'.join(hop)}"
            if queue.parent and queue.parent not in by_name:
                raise InputError(
                    f"{label} is inside {queue.parent!r}, which is no queue of that link"
                )
            if _depth(queue, by_name) > MAX_QUEUE_DEPTH:
                raise InputError(
                    f"{label} is inside more than {MAX_QUEUE_DEPTH - 1} others (or itself), "
                    f"expected at most {MAX_QUEUE_DEPTH - 1}"
                )


def _depth(queue: Queue, by_name: Mapping[str, Queue]) -> int:
    """1 for a queue of the link; more than MAX_QUEUE_DEPTH where there is no end."""
    depth = 1
    while queue.parent in by_name and depth <= MAX_QUEUE_DEPTH:
        queue, depth = by_name[queue.parent], depth + 1
    return depth


class Commands(Protocol):
    """Runs commands."""

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        """The exit code, standard output and standard error. Raises MissingError."""
        ...


class CommandRunner:
    """Runs commands on this machine, behind a prefix such as ``ip netns exec NAME``."""

    def __init__(self, prefix: Sequence[str] = (), timeout_s: float = 10.0) -> None:
        self._prefix = tuple(prefix)
        self._timeout_s = timeout_s

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        """See :class:`Commands`. A command that takes too long is killed and counts as failed."""
        argv = [*self._prefix, *command]
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                text=True,
                errors="replace",  # what a login prints, too
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
            )
        except FileNotFoundError:
            package = _PACKAGES.get(Path(argv[0]).name, "iproute2")
            raise MissingError(
                f"{argv[0]!r} was not found; it is in the Debian package {package}"
            ) from None
        except OSError as error:
            return 126, "", f"{argv[0]}: {error.strerror}"  # as a shell has it
        except subprocess.TimeoutExpired:
            return 124, "", f"no answer within {self._timeout_s:g} s"
        return done.returncode, done.stdout, done.stderr


def answer(runner: Commands, command: Sequence[str], stdin: str = "") -> str:
    """What a command that shapes prints. Raises ControllerError where it fails, MissingError."""
    code, out, error = runner.ask(command, stdin)
    if code != 0:
        raise refusal(command, code, error)
    return out


def refusal(command: Sequence[str], code: int, error: str) -> ControllerError:
    """What a command that failed said, in one line."""
    reason = "; ".join(line.strip() for line in error.splitlines() if line.strip())
    return ControllerError(f"{command[0]} refused to shape: {reason or f'exit code {code}'}")


class Shaper(Protocol):
    """Keeps rates on devices. Every method may raise ControllerError or MissingError."""

    def begin(self, shapes: Iterable[DeviceShape]) -> None:
        """Have these on devices without any shaping. What others have may be an earlier run's,
        with traffic on it: it stays until it is known what is wanted."""
        ...

    def sync(self, shapes: Iterable[DeviceShape]) -> list[str]:
        """Have exactly this on these devices, and leave alone those that have it. Returns the
        devices that had something else."""
        ...

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        """Add and change classes, before packets are marked for them."""
        ...

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        """Remove the classes that are not in ``shapes``, after the last packet was marked."""
        ...

    def doubt(self, devices: Iterable[str] | None = None) -> None:
        """Somebody else may have changed these devices, or any: look before the next step, or lay
        anew."""
        ...

    def remove(self, devices: Iterable[str]) -> None:
        """Remove our shaping from these devices, also that of an earlier process."""
        ...
