"""A device's classes as HTB, laid by ``tc``.

A class's number is made of its queue and its mark, so it stays while others come and go, and a mark
that moves to another queue gets another class: HTB cannot move one.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from network_provisioner.base.controller import ControllerError
from network_provisioner.controllers.shaping.shapes import (
    LAST_PRIO,
    Commands,
    DeviceShape,
    QueueClass,
    answer,
    refusal,
)

_SCALES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# What says that a discipline is ours. Open vSwitch and people begin at 1, and the kernel gives
# handles from 0x8000 on to what has none; packet queues have those of their classes, below 0x7ad0.
_ROOT = "7ad0:"
_LINK_CLASS = f"{_ROOT}1"
_BEST_EFFORT = f"{_ROOT}2"
# Class minors have 16 bits: 0x100 plus 6 bits of mark (0 is the queue itself) and a queue's number.
_FIRST_MINOR = 0x100
_MARK_BITS = 6
# A class has two filters, whose preferences have 16 bits together.
_QUEUE_NUMBERS = 480

# A segmentation-offload packet has up to 64 kB: bursts and quanta must hold one, queues several.
_MIN_BURST_BYTES = 131_072
_BURST_S = 0.004
_QUANTUM_BYTES = 70_000
# A larger ratio than this of two quanta would be a burst that others notice.
_MOST_QUANTA = 5.0
_MIN_QUEUE_BYTES = 262_144
_MIN_QUEUE_S = 0.05
_MOST_QUEUE_BYTES = (1 << 32) - 1  # the kernel's limits have 32 bits


@dataclass(frozen=True, slots=True)
class _HtbClass:
    """A class of a device. ``prio`` is None where it has children, which HTB gives none; ``mark``
    is the DSCP value of the packets that a filter sends here, 0 for none."""

    parent: str
    rate_bps: float
    ceil_bps: float
    prio: int | None = None
    quantum: int = _QUANTUM_BYTES
    mark: int = 0


def _tree(shape: DeviceShape) -> dict[str, _HtbClass]:
    """Every class of a device by its id, parents first."""
    numbers = _numbers(shape.queues)

    def class_id(queue: str, mark: int = 0) -> str:
        if not queue and not mark:
            return _LINK_CLASS
        number = numbers[queue] if queue else 0
        return f"{_ROOT}{_FIRST_MINOR + (number << _MARK_BITS) + mark:x}"

    weights = [c.weight for c in shape.classes if c.queue]
    # Quanta are relative; where weights differ more than that, the light ones count alike.
    light = max(min(weights), max(weights) / _MOST_QUANTA) if weights else 1.0
    capacity = shape.capacity_bps
    tree = {
        _LINK_CLASS: _HtbClass(_ROOT, capacity, capacity),
        _BEST_EFFORT: _HtbClass(_LINK_CLASS, shape.best_effort_bps, capacity, LAST_PRIO),
    }
    for q in shape.queues:
        tree[class_id(q.name)] = _HtbClass(class_id(q.parent), q.rate_bps, q.ceil_bps)
    for c in shape.classes:
        quantum = round(_QUANTUM_BYTES * max(1.0, c.weight / light)) if c.queue else _QUANTUM_BYTES
        tree[class_id(c.queue, c.mark)] = _HtbClass(
            class_id(c.queue), c.rate_bps, c.ceil_bps, c.prio, quantum, c.mark
        )
    return tree


def lay(shape: DeviceShape) -> list[str]:
    """Commands that lay a device's whole tree, whatever was on it."""
    dev = shape.device
    return [
        # tc cannot replace one HTB by another; any other discipline makes place for a new one.
        f"qdisc replace dev {dev} root pfifo",
        f"qdisc replace dev {dev} root handle {_ROOT} htb default 2",
        *(line for class_id, c in _tree(shape).items() for line in _make(shape, class_id, c)),
    ]


def grow(old: DeviceShape, new: DeviceShape) -> list[str]:
    """Commands that add and change classes, to be run before packets get the new marks."""
    before, after = _tree(old), _tree(new)
    lines = []
    for class_id, c in after.items():
        line = _class(new, class_id, c)
        if class_id not in before:
            lines += _make(new, class_id, c)
        elif class_id != _BEST_EFFORT and line != _class(old, class_id, before[class_id]):
            lines.append(line)
    best_effort = _class(new, _BEST_EFFORT, after[_BEST_EFFORT])
    if new.best_effort_bps < old.best_effort_bps:
        return [best_effort, *lines]
    # What a class that goes away leaves is handed out by `shrink`, when it has gone.
    if new.best_effort_bps > old.best_effort_bps and before.keys() <= after.keys():
        lines.append(best_effort)
    return lines


def shrink(old: DeviceShape, new: DeviceShape) -> list[str]:
    """Commands that remove classes, to be run when no packet has the old marks any more."""
    before, after = _tree(old), _tree(new)
    dev = new.device
    lines = []
    for class_id in reversed([i for i in before if i not in after]):  # children first
        if before[class_id].mark:
            lines += [f"filter del dev {dev} parent {_ROOT} {kind}" for kind in _filters(class_id)]
        lines.append(f"class del dev {dev} classid {class_id}")
    if new.best_effort_bps > old.best_effort_bps:
        lines.append(_class(new, _BEST_EFFORT, after[_BEST_EFFORT]))
    return lines


def must_lay(old: DeviceShape, new: DeviceShape) -> bool:
    """Whether only laying anew helps: a queue is to be served out of another one than before."""
    before = {q.name: q.parent for q in old.queues}
    return any(before.get(q.name, q.parent) != q.parent for q in new.queues)


def show(devices: Iterable[str]) -> list[str]:
    """Commands that say what is on some devices. Where that of one begins nothing says, so there is
    a line before it: each machine has a loopback device."""
    return [
        line
        for device in devices
        for line in (
            "qdisc show dev lo",
            f"class show dev {device}",
            f"filter show dev {device} parent {_ROOT}",
        )
    ]


def shown_of(devices: Sequence[str], shown: str) -> dict[str, str]:
    """What :func:`show` gave, by device. Raises ValueError where that is cut off."""
    parts = re.split(r"^qdisc .* root .*$", shown, flags=re.MULTILINE)[1:]
    return dict(zip(devices, parts, strict=True))


def is_laid(shown: str) -> bool:
    """Whether what :func:`shown_of` gave is a tree of ours, whatever its classes."""
    return any(line.startswith(f"class htb {_LINK_CLASS} root") for line in shown.splitlines())


def agrees(shape: DeviceShape, shown: str) -> bool:
    """Whether what :func:`shown_of` gave is this shape, with all its classes and filters."""
    there: dict[str, _HtbClass] = {}
    filtered: Counter[tuple[str, str]] = Counter()
    target = ""
    for line in shown.splitlines():
        words = line.split()
        value = dict(pairwise(words))
        if words[:2] == ["class", "htb"]:
            rates = _bps(value["rate"]), _bps(value["ceil"])
            there[words[2]] = _HtbClass(
                value.get("parent", _ROOT), *rates, int(value.get("prio", 0))
            )
        elif words[:1] == ["match"]:
            filtered[target, words[1]] += 1
        else:
            target = value.get("flowid") or value.get("*flowid") or target
    wanted = _tree(shape)
    return (
        filtered
        == Counter((i, match) for i, c in wanted.items() if c.mark for match in _matches(c.mark))
        and there.keys() == wanted.keys()
        and all(_alike(there[class_id], wanted[class_id]) for class_id in wanted)
    )


def _alike(there: _HtbClass, wanted: _HtbClass) -> bool:
    """The kernel keeps whole bytes per second, and tc prints four to six digits."""
    rates = ((there.rate_bps, wanted.rate_bps), (there.ceil_bps, wanted.ceil_bps))
    return (there.parent, there.prio or 0) == (wanted.parent, wanted.prio or 0) and all(
        abs(a - b) <= max(16.0, 0.001 * b) for a, b in rates
    )


def _bps(text: str) -> float:
    """``148500Kbit`` in b/s."""
    number = text.removesuffix("bit")
    scale = _SCALES.get(number[-1:], 1.0)
    return float(number.rstrip("KMGT")) * scale


def _numbers(queues: Iterable[QueueClass]) -> Mapping[str, int]:
    """A number for every queue that does not depend on the others, but for rare collisions."""
    taken: dict[int, str] = {}
    for q in queues:
        digest = hashlib.sha256(q.name.encode()).digest()
        number = int.from_bytes(digest[:4], "big") % _QUEUE_NUMBERS
        while number in taken:
            number = (number + 1) % _QUEUE_NUMBERS
        taken[number] = q.name
    return {name: number + 1 for number, name in taken.items()}


def _minor(class_id: str) -> int:
    return int(class_id.partition(":")[2], 16)


def _class(shape: DeviceShape, class_id: str, c: _HtbClass) -> str:
    """Makes or changes a class."""
    burst = max(_MIN_BURST_BYTES, round(shape.capacity_bps / 8 * _BURST_S))
    leaf = "" if c.prio is None else f" prio {c.prio}"
    return (
        f"class replace dev {shape.device} parent {c.parent} classid {class_id} htb "
        f"rate {round(c.rate_bps)}bit ceil {round(c.ceil_bps)}bit "
        f"burst {burst} cburst {burst} quantum {c.quantum}{leaf}"
    )


def _make(shape: DeviceShape, class_id: str, c: _HtbClass) -> list[str]:
    """Makes a class, with its packet queue and its filter where it has them."""
    lines = [_class(shape, class_id, c)]
    if c.prio is not None:
        held_s = max(_MIN_QUEUE_S, 2 * shape.delay_s)
        limit = max(_MIN_QUEUE_BYTES, round(shape.capacity_bps / 8 * held_s))
        limit = min(limit, _MOST_QUEUE_BYTES)
        # The leaf's handle is the class minor: unique on the device, and readable.
        lines.append(
            f"qdisc replace dev {shape.device} parent {class_id} "
            f"handle {_minor(class_id):x}: bfifo limit {limit}"
        )
    if c.mark:
        # The two low bits of the TOS byte, or the traffic class, are ECN and none of ours.
        fields = ("ip tos", "ip6 priority")
        lines += [
            f"filter add dev {shape.device} parent {_ROOT} {kind} u32 "
            f"match {field} {c.mark << 2:#04x} 0xfc flowid {class_id}"
            for kind, field in zip(_filters(class_id), fields, strict=True)
        ]
    return lines


def _filters(class_id: str) -> tuple[str, str]:
    """What names the filters of a class, for IPv4 and IPv6: the kernel has one protocol for each
    preference."""
    number = 2 * (_minor(class_id) - _FIRST_MINOR)
    return f"protocol ip prio {number}", f"protocol ipv6 prio {number + 1}"


def _matches(mark: int) -> list[str]:
    """What tc says that the filters of a mark look at: the type of service in the first word of
    IPv4, and the traffic class in that of IPv6."""
    return [f"{mark << 2 << at:08x}/{0xFC << at:08x}" for at in (16, 20)]


class TcShaper:
    """A :class:`~network_provisioner.controllers.shaping.shapes.Shaper` by ``tc``, with one
    ``tc -batch`` for each call that changes anything.

    It remembers what it laid. A device that has lost its classes (somebody deleted the discipline)
    makes a batch fail; then all devices of the call are laid anew, once.
    """

    def __init__(self, run: Commands) -> None:
        self._run = run
        # None: on the device is something we no longer know.
        self._laid: dict[str, DeviceShape | None] = {}
        # Devices that somebody else may have changed since.
        self._doubted: set[str] = set()
        # What was found as it should be, and how the kernel says that.
        self._agreed: dict[str, tuple[DeviceShape, str]] = {}

    def begin(self, shapes: Iterable[DeviceShape]) -> None:
        wanted = list(shapes)
        for shape in wanted:
            self._laid.setdefault(shape.device, None)
        said = self._said([shape.device for shape in wanted])
        self.sync([shape for shape in wanted if not is_laid(said[shape.device])])

    def sync(self, shapes: Iterable[DeviceShape]) -> list[str]:
        wanted = list(shapes)
        said = self._said([shape.device for shape in wanted])
        others = [shape for shape in wanted if not self._agrees(shape, said[shape.device])]
        self._laid.update((shape.device, None) for shape in others)
        self._batch([line for shape in others for line in lay(shape)])
        self._laid.update((shape.device, shape) for shape in wanted)
        self._doubted -= {shape.device for shape in wanted}
        return [shape.device for shape in others]

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        self._step(list(shapes), grow, _union)

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        self._step(list(shapes), shrink, lambda _, new: new)

    def doubt(self, devices: Iterable[str] | None = None) -> None:
        self._doubted.update(self._laid if devices is None else devices)

    def remove(self, devices: Iterable[str]) -> None:
        said = self._said(list(devices))
        for device in said:
            self._laid.pop(device, None)
        # The kernel compares the handle: in place of ours may be somebody's by then.
        self._batch([f"qdisc del dev {d} root handle {_ROOT}" for d in said if is_laid(said[d])])

    def _step(
        self,
        wanted: list[DeviceShape],
        commands: Callable[[DeviceShape, DeviceShape], list[str]],
        after: Callable[[DeviceShape, DeviceShape], DeviceShape],
    ) -> None:
        lines = []
        devices = [shape.device for shape in wanted]
        said = self._said([d for d in devices if self._laid.get(d) is None or d in self._doubted])
        for shape in wanted:
            old = self._laid.get(shape.device)
            if (text := said.get(shape.device)) is not None:
                old = next((s for s in (shape, old) if s and self._agrees(s, text)), None)
                self._doubted.discard(shape.device)
            if old is not None and must_lay(old, shape):
                old = None
            self._laid[shape.device] = old
            lines += lay(shape) if old is None else commands(old, shape)
        try:
            self._batch(lines)
        except ControllerError:
            self._laid.update((shape.device, None) for shape in wanted)
            self.sync(wanted)
            return
        for shape in wanted:
            old = self._laid.get(shape.device)
            self._laid[shape.device] = shape if old is None else after(old, shape)

    def _agrees(self, shape: DeviceShape, said: str) -> bool:
        if self._agreed.get(shape.device) == (shape, said):
            return True
        matches = agrees(shape, said)
        if matches:
            self._agreed[shape.device] = shape, said
        return matches

    def _said(self, devices: Sequence[str]) -> dict[str, str]:
        """What the kernel says of each device, nothing where it has no classes."""
        if not devices:
            return {}
        command = ["tc", "-force", "-batch", "-"]
        # It fails for devices without classes, and says all it knows.
        code, said, error = self._run.ask(command, "\n".join(show(devices)) + "\n")
        try:
            return shown_of(devices, said)
        except ValueError:
            raise refusal(command, code, error) from None

    def _batch(self, lines: list[str]) -> None:
        if lines:
            answer(self._run, ["tc", "-batch", "-"], "\n".join(lines) + "\n")


def _union(old: DeviceShape, new: DeviceShape) -> DeviceShape:
    """What is on a device after growing from ``old`` towards ``new``."""
    classes = {(c.queue, c.mark) for c in new.classes}
    queues = {q.name for q in new.queues}
    return replace(
        new,
        classes=(*new.classes, *(c for c in old.classes if (c.queue, c.mark) not in classes)),
        # Parents still come first: a queue that stays has no parent that goes.
        queues=(*new.queues, *(q for q in old.queues if q.name not in queues)),
    )
