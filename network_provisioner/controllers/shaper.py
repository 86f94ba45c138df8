"""Lays HTB classes on devices with ``tc``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.shaping import DeviceShape, clear, grow, lay, shrink
from network_provisioner.errors import MissingError


class Runner(Protocol):
    """Runs a command with text on its standard input."""

    def __call__(self, command: Sequence[str], stdin: str) -> tuple[int, str]:
        """The exit code and what it said on standard error. Raises MissingError."""
        ...


class CommandRunner:
    """Runs commands on this machine, behind a prefix such as ``ip netns exec NAME``."""

    def __init__(self, prefix: Sequence[str] = (), timeout_s: float = 10.0) -> None:
        self._prefix = tuple(prefix)
        self._timeout_s = timeout_s

    def __call__(self, command: Sequence[str], stdin: str) -> tuple[int, str]:
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
            raise MissingError(
                f"{argv[0]!r} was not found; it is in the Debian package iproute2"
            ) from None
        except subprocess.TimeoutExpired:
            return 124, f"no answer within {self._timeout_s:g} s"
        return done.returncode, done.stderr


class Shaper(Protocol):
    """Keeps rates on devices. Every method may raise ControllerError or MissingError."""

    def sync(self, shapes: Iterable[DeviceShape]) -> None:
        """Lay these devices from nothing, whatever is on them."""
        ...

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        """Add and change classes, before packets are marked for them."""
        ...

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        """Remove the classes that are not in ``shapes``, after the last packet was marked."""
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

    def sync(self, shapes: Iterable[DeviceShape]) -> None:
        """See :class:`Shaper`."""
        wanted = list(shapes)
        self._laid.update((shape.device, None) for shape in wanted)
        self._batch([line for shape in wanted for line in lay(shape)])
        self._laid.update((shape.device, shape) for shape in wanted)

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        """See :class:`Shaper`."""
        self._step(list(shapes), grow, _union)

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        """See :class:`Shaper`."""
        self._step(list(shapes), shrink, lambda _, new: new)

    def clear(self) -> None:
        """See :class:`Shaper`."""
        lines = [line for device in self._laid for line in clear(device)]
        self._laid.clear()
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
            lines += lay(shape) if old is None else commands(old, shape)
        try:
            self._batch(lines)
        except ControllerError:
            self.sync(wanted)
            return
        for shape in wanted:
            old = self._laid.get(shape.device)
            self._laid[shape.device] = shape if old is None else after(old, shape)

    def _batch(self, lines: list[str]) -> None:
        if not lines:
            return
        code, said = self._run(["tc", "-batch", "-"], "\n".join(lines) + "\n")
        if code != 0:
            reason = "; ".join(line.strip() for line in said.splitlines() if line.strip())
            raise ControllerError(f"tc refused to shape: {reason or f'exit code {code}'}")


def _union(old: DeviceShape, new: DeviceShape) -> DeviceShape:
    """What is on a device after growing from ``old`` towards ``new``."""
    marks = {c.mark for c in new.classes}
    return replace(new, classes=(*new.classes, *(c for c in old.classes if c.mark not in marks)))
