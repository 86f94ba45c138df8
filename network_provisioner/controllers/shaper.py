"""Lays HTB classes on devices with ``tc``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.shaping import DeviceShape
from network_provisioner.controllers.tc import (
    agrees,
    clear,
    grow,
    is_laid,
    lay,
    must_lay,
    show,
    shrink,
)
from network_provisioner.errors import MissingError

_PACKAGES = {"ovs-vsctl": "openvswitch-switch"}


class Runner(Protocol):
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
        """See :class:`Runner`. A command that takes too long is killed and counts as failed."""
        argv = [*self._prefix, *command]
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                text=True,
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
            )
        except FileNotFoundError:
            package = _PACKAGES.get(Path(argv[0]).name, "iproute2")
            raise MissingError(
                f"{argv[0]!r} was not found; it is in the Debian package {package}"
            ) from None
        except subprocess.TimeoutExpired:
            return 124, "", f"no answer within {self._timeout_s:g} s"
        return done.returncode, done.stdout, done.stderr


class Shaper(Protocol):
    """Keeps rates on devices. Every method may raise ControllerError or MissingError."""

    def begin(self, shapes: Iterable[DeviceShape]) -> None:
        """Have these on devices without any shaping. What others have may be an earlier run's,
        with traffic on it: it stays until it is known what is wanted."""
        ...

    def sync(self, shapes: Iterable[DeviceShape]) -> None:
        """Have exactly this on these devices, whatever is on them."""
        ...

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        """Add and change classes, before packets are marked for them."""
        ...

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        """Remove the classes that are not in ``shapes``, after the last packet was marked."""
        ...

    def doubt(self) -> None:
        """Somebody else may have changed the devices: look before the next step."""
        ...

    def clear(self) -> None:
        """Leave every device that was ever laid without shaping."""
        ...


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
        if not lines:
            return
        code, _, said = self._run.ask(["tc", "-batch", "-"], "\n".join(lines) + "\n")
        if code != 0:
            reason = "; ".join(line.strip() for line in said.splitlines() if line.strip())
            raise ControllerError(f"tc refused to shape: {reason or f'exit code {code}'}")


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
