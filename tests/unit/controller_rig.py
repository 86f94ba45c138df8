"""Two fake switches with the real embedded controller, and a shaper that only writes down."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from controller_worlds import MBPS, HastyClock, two_switches
from fake_switch import FakeSwitch

from examples.testbed.ports import free_port
from network_provisioner.base.controller import Circuit, Controller, ControllerError
from network_provisioner.controllers.backend import SwitchChange, SwitchEvent
from network_provisioner.controllers.openflow import driver
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.rules import OWNER_SHIFT, STAMP_OWNER
from network_provisioner.controllers.shaping.shapes import DeviceShape
from network_provisioner.topology.graph import Topology

PATH = ("mu", "s1", "s2", "tacc")


class RecordingShaper:
    """Keeps what it was told; refuses while ``broken``."""

    def __init__(self) -> None:
        self.laid: dict[str, DeviceShape] = {}
        self.broken = False

    def begin(self, shapes: Iterable[DeviceShape]) -> None:
        self._take(shapes)

    def sync(self, shapes: Iterable[DeviceShape]) -> list[str]:
        wanted = list(shapes)
        others = [s.device for s in wanted if self.laid.get(s.device) != s]
        self._take(wanted)
        return others

    def grow(self, shapes: Iterable[DeviceShape]) -> None:
        if self.broken:
            raise ControllerError("tc refused to shape: no")
        self._take(_with_old_classes(self.laid.get(shape.device), shape) for shape in shapes)

    def shrink(self, shapes: Iterable[DeviceShape]) -> None:
        self._take(shapes)

    def doubt(self, devices: Iterable[str] | None = None) -> None:
        """It forgets what it is told to."""
        for device in devices or ():
            del self.laid[device]

    def remove(self, devices: Iterable[str]) -> None:
        for device in devices:
            self.laid.pop(device, None)

    def _take(self, shapes: Iterable[DeviceShape]) -> None:
        self.laid.update((shape.device, shape) for shape in shapes)


def _with_old_classes(old: DeviceShape | None, new: DeviceShape) -> DeviceShape:
    """What a device has until the classes go that are wanted no more."""
    if old is None:
        return new
    marks, names = {c.mark for c in new.classes}, {q.name for q in new.queues}
    return replace(
        new,
        classes=(*new.classes, *(c for c in old.classes if c.mark not in marks)),
        queues=(*new.queues, *(q for q in old.queues if q.name not in names)),
    )


class FakeRig(HastyClock):
    """Two fake switches and the real controller, which is patient with a busy machine."""

    def __init__(self, port: int = 0) -> None:
        """With ``port``, the controller listens there and the switches are somebody else's."""
        super().__init__()
        self.topology: Topology = two_switches()
        self.port = port or free_port()
        self.shaper = RecordingShaper()
        self.openflow = self.new_controller()
        self.controller: Controller = self.openflow
        if not port:
            self.s1 = FakeSwitch(self.port, 1, [1, 4, 10, 11], self.now)
            self.s2 = FakeSwitch(self.port, 2, [2, 10, 11], self.now)

    def new_controller(self) -> OpenFlowController:
        made = OpenFlowController(
            self.topology,
            f"127.0.0.1:{self.port}",
            self.shaper,
            clock=self.now,
            reply_timeout_s=30.0,
            silent_after_s=30.0,
        )
        made._switches.check_s = 3600.0  # a test looks when it wants to
        return made

    def check_often(self) -> None:
        """From now on, switches and devices are compared with what they should have."""
        self.openflow._switches.check_s = 0.01
        for dpid in (0, 1, 2):
            self.openflow._switches.events.put(SwitchEvent(dpid, SwitchChange.LEASE_ENDED))

    def search_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A search for links waits until all frames are heard, and no longer."""

        def wait(_: float) -> None:
            for _ in range(2):  # the switches send each other frames, and then tell of them
                self.openflow._switches.port_bytes({1, 2})

        clock = SimpleNamespace(sleep=wait, monotonic=time.monotonic)
        monkeypatch.setattr(driver, "time", clock)

    def wait_at_most(self, seconds: float) -> None:
        """From now on, for each answer of a switch."""
        self.openflow._switches._reply_timeout_s = seconds

    def circuit(self, name: str = "a", rate: float = 50.0, lease_s: float = 600.0) -> Circuit:
        return Circuit(name, PATH, rate * MBPS, 2 * rate * MBPS, self.now() + lease_s)

    def restart_switches(self) -> None:
        self.s1.restart()
        self.s2.restart()

    def owners(self, switch: FakeSwitch) -> list[int]:
        """Of all rules but the stamp."""
        return sorted(cookie >> OWNER_SHIFT for cookie in self.cookies(switch).values())

    def cookies(self, switch: FakeSwitch) -> dict[tuple[int, bytes], int]:
        """The cookie of every rule but the stamp."""
        there = {k: e.cookie for k, e in list(switch.table.items())}
        return {k: c for k, c in there.items() if c >> OWNER_SHIFT != STAMP_OWNER}

    def close(self) -> None:
        self.controller.stop()
        self.s1.close()
        self.s2.close()
