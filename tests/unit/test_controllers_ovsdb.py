"""What ``ovs-vsctl`` is asked; what it makes of that is in the tests with a real Open vSwitch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.shaping.ovsdb import VsctlShaper
from network_provisioner.controllers.shaping.shapes import DeviceShape, ShapeClass

ONE = DeviceShape("s1", "s1-a", 200e6, 0.0265, (ShapeClass(5, 150e6, 200e6),))


class Vsctl:
    """Says yes with as many records as were to be made, or no."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.asked: list[Sequence[str]] = []

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        self.asked.append(command)
        made = [f"uuid{n}" for n, word in enumerate(command) if word == "create"]
        return self.code, "\n".join(made), "ovs-vsctl: no\n" if self.code else ""


def test_nothing_is_asked_where_nothing_changes() -> None:
    vsctl = Vsctl()
    shaper = VsctlShaper(vsctl)
    shaper.sync([ONE])
    asked = len(vsctl.asked)
    shaper.grow([ONE])
    shaper.shrink([ONE])
    assert len(vsctl.asked) == asked


def test_a_refusal_is_one_line() -> None:
    with pytest.raises(ControllerError, match=r"ovs-vsctl refused to shape: ovs-vsctl: no$"):
        VsctlShaper(Vsctl(1)).sync([ONE])
