"""A device's classes as HTB, laid by ``tc``.

A class's number is made of its queue and its mark, so it stays while others come and go, and a mark
that moves to another queue gets another class: HTB cannot move one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.shaping.shapes import (
    LAST_PRIO,
    DeviceShape,
    QueueClass,
    Runner,
    ShapeClass,
    answer,
)

_SCALES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_LINK_CLASS = "1:1"
_BEST_EFFORT_CLASS = "1:2"
# Class minors have 16 bits: 1:100 plus 6 bits of mark (0 is the queue itself) and a queue's number.
_FIRST_MINOR = 0x100
_MARK_BITS = 6
_QUEUE_NUMBERS = 1000

# A segmentation-offload packet has up to 64 kB: bursts and quanta must hold one, queues several.
_MIN_BURST_BYTES = 131_072
_BURST_S = 0.004
_QUANTUM_BYTES = 70_000
# A larger ratio than this of two quanta would be a burst that others notice.
_MOST_QUANTA = 5.0
_MIN_QUEUE_BYTES = 262_144
_MIN_QUEUE_S = 0.05


def lay(shape: DeviceShape) -> list[str]:
    """Commands that lay a device's whole tree, whatever was on it."""
    dev = shape.device
    names = _Names(shape)
    return [
        # tc cannot replace one HTB by another; any other discipline makes place for a new one.
        f"qdisc replace dev {dev} root pfifo",
        f"qdisc replace dev {dev} root handle 1: htb default 2",
        _class(shape, "1:", _LINK_CLASS, shape.capacity_bps, shape.capacity_bps),
        _best_effort(shape),
        _buffer(shape, _BEST_EFFORT_CLASS),
        *(names.queue_line(q) for q in shape.queues),
        *(line for c in shape.classes for line in names.new_class(c)),
    ]


def grow(old: DeviceShape, new: DeviceShape) -> list[str]:
    """Commands that add and change classes, to be run before packets get the new marks."""
    there, wanted = _Names(old), _Names(new)
    queues_before = there.queues()
    before = there.classes()
    lines = []
    if new.best_effort_bps < old.best_effort_bps:
        lines.append(_best_effort(new))
    for number, q in wanted.queues().items():
        if queues_before.get(number) != q:
            lines.append(wanted.queue_line(q))
    for class_id, c in wanted.classes().items():
        if class_id not in before:
            lines += wanted.new_class(c)
        elif there.class_line(before[class_id]) != wanted.class_line(c):
            lines.append(wanted.class_line(c))
    # What a class that goes away leaves is handed out by `shrink`, when it has gone.
    nothing_goes = (
        before.keys() <= wanted.classes().keys() and queues_before.keys() <= wanted.queues().keys()
    )
    if nothing_goes and new.best_effort_bps > old.best_effort_bps:
        lines.append(_best_effort(new))
    return lines


def shrink(old: DeviceShape, new: DeviceShape) -> list[str]:
    """Commands that remove classes, to be run when no packet has the old marks any more."""
    there, wanted = _Names(old), _Names(new)
    lines = []
    for class_id in there.classes().keys() - wanted.classes().keys():
        minor = int(class_id.partition(":")[2], 16)
        lines.append(f"filter del dev {new.device} parent 1: protocol ip prio {minor}")
        lines.append(f"class del dev {new.device} classid {class_id}")
    gone = there.queues().keys() - wanted.queues().keys()
    # Children first.
    for class_id in reversed([i for i in there.queues() if i in gone]):
        lines.append(f"class del dev {new.device} classid {class_id}")
    if new.best_effort_bps > old.best_effort_bps:
        lines.append(_best_effort(new))
    return lines


def must_lay(old: DeviceShape, new: DeviceShape) -> bool:
    """Whether only laying anew helps: a queue is to be served out of another one than before."""
    before = {q.name: q.parent for q in old.queues}
    return any(before.get(q.name, q.parent) != q.parent for q in new.queues)


def show(device: str) -> list[str]:
    """Commands that say what is on a device."""
    return [f"class show dev {device}", f"filter show dev {device} parent 1:"]


def is_laid(said: str) -> bool:
    """Whether what :func:`show` said is a tree of ours, whatever its classes."""
    return any(line.startswith(f"class htb {_LINK_CLASS} root") for line in said.splitlines())


def agrees(shape: DeviceShape, said: str) -> bool:
    """Whether what :func:`show` said is this shape, with all its classes and filters."""
    there: dict[str, tuple[str, float, float, int]] = {}
    filtered = set()
    for line in said.splitlines():
        words = line.split()
        value = dict(pairwise(words))
        if words[:2] == ["class", "htb"]:
            there[words[2]] = (
                value.get("parent", "1:"),
                _bps(value["rate"]),
                _bps(value["ceil"]),
                int(value.get("prio", 0)),
            )
        elif target := value.get("flowid") or value.get("*flowid"):
            filtered.add(target)
    names = _Names(shape)
    wanted = names.table()
    return (
        filtered == names.classes().keys()
        and there.keys() == wanted.keys()
        and all(_alike(there[class_id], wanted[class_id]) for class_id in wanted)
    )


def _alike(one: tuple[str, float, float, int], other: tuple[str, float, float, int]) -> bool:
    """The kernel keeps whole bytes per second, and tc prints four to six digits."""
    rates = zip(one[1:3], other[1:3], strict=True)
    return (one[0], one[3]) == (other[0], other[3]) and all(
        abs(a - b) <= max(16.0, 0.001 * b) for a, b in rates
    )


def _bps(text: str) -> float:
    """``148500Kbit`` in b/s."""
    number = text.removesuffix("bit")
    scale = _SCALES.get(number[-1:], 1.0)
    return float(number.rstrip("KMGT")) * scale


def clear(device: str) -> list[str]:
    """Commands that leave a device without any shaping, whatever was on it."""
    return [f"qdisc replace dev {device} root pfifo", f"qdisc del dev {device} root"]


class _Names:
    """The numbers of a shape's classes, and the commands that need them."""

    def __init__(self, shape: DeviceShape) -> None:
        self._shape = shape
        self._numbers = _numbers(shape.queues)
        weights = [c.weight for c in shape.classes if c.queue]
        # Quanta are relative; where weights differ more than that, the light ones count alike.
        self._light = max(min(weights), max(weights) / _MOST_QUANTA) if weights else 1.0

    def queues(self) -> dict[str, QueueClass]:
        """Every queue by its class id, parents first."""
        return {self._id(q.name, 0): q for q in self._shape.queues}

    def classes(self) -> dict[str, ShapeClass]:
        """Every mark's class by its class id."""
        return {self._id(c.queue, c.mark): c for c in self._shape.classes}

    def table(self) -> dict[str, tuple[str, float, float, int]]:
        """Parent, rate, ceiling and priority of every class of the device."""
        s = self._shape
        found = {
            _LINK_CLASS: ("1:", s.capacity_bps, s.capacity_bps, 0),
            _BEST_EFFORT_CLASS: (_LINK_CLASS, s.best_effort_bps, s.capacity_bps, LAST_PRIO),
        }
        for class_id, q in self.queues().items():
            found[class_id] = (self._parent(q.parent), q.rate_bps, q.ceil_bps, 0)
        for class_id, c in self.classes().items():
            found[class_id] = (self._parent(c.queue), c.rate_bps, c.ceil_bps, c.prio)
        return found

    def queue_line(self, q: QueueClass) -> str:
        """Makes or changes a queue's class."""
        parent = self._parent(q.parent)
        return _class(self._shape, parent, self._id(q.name, 0), q.rate_bps, q.ceil_bps)

    def class_line(self, c: ShapeClass) -> str:
        """Makes or changes a mark's class."""
        times = max(1.0, c.weight / self._light) if c.queue else 1.0
        return _class(
            self._shape,
            self._parent(c.queue),
            self._id(c.queue, c.mark),
            c.rate_bps,
            c.ceil_bps,
            round(_QUANTUM_BYTES * times),
            c.prio,
        )

    def new_class(self, c: ShapeClass) -> list[str]:
        """Makes a mark's class with its packet queue and its filter."""
        class_id = self._id(c.queue, c.mark)
        minor = int(class_id.partition(":")[2], 16)
        return [
            self.class_line(c),
            _buffer(self._shape, class_id),
            # The two low bits of the TOS byte are ECN and none of ours.
            f"filter add dev {self._shape.device} parent 1: protocol ip prio {minor} u32 "
            f"match ip tos {c.mark << 2:#04x} 0xfc flowid {class_id}",
        ]

    def _parent(self, queue: str) -> str:
        return self._id(queue, 0) if queue else _LINK_CLASS

    def _id(self, queue: str, mark: int) -> str:
        number = self._numbers[queue] if queue else 0
        return f"1:{_FIRST_MINOR + (number << _MARK_BITS) + mark:x}"


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


def _best_effort(shape: DeviceShape) -> str:
    return _class(
        shape,
        _LINK_CLASS,
        _BEST_EFFORT_CLASS,
        shape.best_effort_bps,
        shape.capacity_bps,
        prio=LAST_PRIO,
    )


def _class(
    shape: DeviceShape,
    parent: str,
    class_id: str,
    rate_bps: float,
    ceil_bps: float,
    quantum: int = _QUANTUM_BYTES,
    prio: int | None = None,
) -> str:
    burst = max(_MIN_BURST_BYTES, round(shape.capacity_bps / 8 * _BURST_S))
    # HTB takes no prio for a class that has children.
    leaf = "" if prio is None else f" prio {prio}"
    return (
        f"class replace dev {shape.device} parent {parent} classid {class_id} htb "
        f"rate {round(rate_bps)}bit ceil {round(ceil_bps)}bit "
        f"burst {burst} cburst {burst} quantum {quantum}{leaf}"
    )


def _buffer(shape: DeviceShape, class_id: str) -> str:
    held_s = max(_MIN_QUEUE_S, 2 * shape.delay_s)
    limit = max(_MIN_QUEUE_BYTES, round(shape.capacity_bps / 8 * held_s))
    # The leaf's handle is the class minor: unique on the device, and readable.
    return (
        f"qdisc replace dev {shape.device} parent {class_id} "
        f"handle {class_id.partition(':')[2]}: bfifo limit {limit}"
    )


class TcShaper:
    """HTB by ``tc``: one ``tc -batch`` for each call that changes anything.

    It remembers what it laid. A device that has lost its classes (somebody deleted the discipline)
    makes a batch fail; then all devices of the call are laid anew, once.
    """

    def __init__(self, run: Runner) -> None:
        self._run = run
        # None: on the device is something we no longer know.
        self._laid: dict[str, DeviceShape | None] = {}
        # Devices that somebody else may have changed since.
        self._doubted: set[str] = set()

    def begin(self, shapes: Iterable[DeviceShape]) -> None:
        """See :class:`Shaper`."""
        self.sync([shape for shape in shapes if not is_laid(self._said(shape))])

    def sync(self, shapes: Iterable[DeviceShape]) -> None:
        """See :class:`Shaper`. A device that has it already is left alone, with what is queued."""
        wanted = list(shapes)
        self._laid.update((shape.device, None) for shape in wanted)
        others = [shape for shape in wanted if not self._is_on_device(shape)]
        self._batch([line for shape in others for line in lay(shape)])
        self._laid.update((shape.device, shape) for shape in wanted)
        self._doubted -= {shape.device for shape in wanted}

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        """See :class:`Shaper`."""
        self._step(list(shapes), grow, _union)

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        """See :class:`Shaper`."""
        self._step(list(shapes), shrink, lambda _, new: new)

    def doubt(self) -> None:
        """See :class:`Shaper`."""
        self._doubted |= self._laid.keys()

    def clear(self) -> None:
        """See :class:`Shaper`."""
        lines = [line for device in self._laid for line in clear(device)]
        self._laid.clear()
        self._doubted.clear()
        self._batch(lines)

    def _step(
        self,
        wanted: list[DeviceShape],
        commands: Callable[[DeviceShape, DeviceShape], list[str]],
        after: Callable[[DeviceShape, DeviceShape], DeviceShape],
    ) -> None:
        lines = []
        for shape in wanted:
            old = self._laid.get(shape.device)
            if old is None or shape.device in self._doubted:
                old = next((s for s in (shape, old) if s and self._is_on_device(s)), None)
                self._doubted.discard(shape.device)
            if old is not None and must_lay(old, shape):
                old = None
            self._laid[shape.device] = old
            lines += lay(shape) if old is None else commands(old, shape)
        try:
            self._batch(lines)
        except ControllerError:
            self.sync(wanted)
            return
        for shape in wanted:
            old = self._laid.get(shape.device)
            self._laid[shape.device] = shape if old is None else after(old, shape)

    def _is_on_device(self, shape: DeviceShape) -> bool:
        return agrees(shape, self._said(shape))

    def _said(self, shape: DeviceShape) -> str:
        """What the kernel says of a device, nothing where it has no classes."""
        asked = "\n".join(show(shape.device)) + "\n"
        code, said, _ = self._run.ask(["tc", "-batch", "-"], asked)
        return said if code == 0 else ""

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
