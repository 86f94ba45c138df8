from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from controller_worlds import MBPS, two_switches

from network_provisioner.base.controller import Circuit, Controller
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.topology.graph import Topology


@dataclass
class SimulatedRig:
    topology: Topology = field(default_factory=two_switches)
    time: float = 1000.0

    def __post_init__(self) -> None:
        self.simulated = SimulatedController(self.topology, self.now)
        self.controller: Controller = self.simulated

    def now(self) -> float:
        return self.time

    def wait_for(self, what: str, check: Callable[[], bool]) -> None:
        for _ in range(100):
            if check():
                return
            self.time += 0.1
        raise TimeoutError(what)

    def restart_switches(self) -> None:
        """There are none."""


@pytest.fixture
def rig() -> Iterator[SimulatedRig]:
    made = SimulatedRig()
    made.controller.start(1.0)
    yield made
    made.controller.stop()


class TestSimulated(ControllerConformance):
    """Everything that every driver has to do."""


def test_reported_bytes_are_counted_along_the_path(rig: SimulatedRig) -> None:
    path = ("mu", "s1", "s2", "tacc")
    rig.controller.apply([Circuit("a", path, MBPS, 2 * MBPS, rig.now() + 10)])
    rig.simulated.report_bytes("a", 700)
    rig.simulated.report_bytes("a", 300)
    rig.simulated.report_bytes("unknown", 5)
    assert rig.controller.circuit_bytes("a") == 1000
    sent = {(c.a, c.b): c.bytes for c in rig.controller.counters()}
    assert {hop for hop, n in sent.items() if n} == {("s1", "s2"), ("s2", "tacc")}
    assert sent["s1", "s2"] == 1000
    with pytest.raises(InputError, match="-1 bytes"):
        rig.simulated.report_bytes("a", -1)


def test_it_says_that_it_guarantees_nothing(rig: SimulatedRig) -> None:
    can = rig.controller.capabilities()
    assert (can.name, can.bandwidth, can.real_packets) == ("simulated", "none", False)
