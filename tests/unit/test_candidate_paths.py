"""Measurements of candidate paths: which there are, how packets are held to them, what counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Rig, code_of, demo_network, refusing
from coordinator_rig import ANYBODY, ECHO, CoordinatorRig

from monitors.archive.archive import Archive, Measurement
from monitors.measurements.agent_registry import RegisteredAgent
from monitors.measurements.candidate_paths import USED_S, used_pairs, wanted_tasks
from monitors.measurements.runs import RunState
from monitors.measurements.task_data import definition_of
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import TransitState
from network_provisioner.topology.graph import Topology

L2, L3 = ["s1", "s2"], ["s1", "r1", "s2"]
PATH = ["mu", *L2, "tacc"]
NOW = 1e9


def members_of(network: Topology) -> dict[str, RegisteredAgent]:
    """An agent at each site's own address."""
    return {
        name: RegisteredAgent(name, network.nodes[name].address, (5201, 5204))
        for name in network.sites
    }


class Network:
    """Holds packets to paths, or says why not."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[tuple[str, ...], Flow]] = {}
        self.done: list[str] = []
        self.refusal = ""

    def pin(self, name: str, nodes: Sequence[str], flow: Flow, until: float) -> None:
        if self.refusal:
            raise BrokerError(self.refusal, "conflict")
        self.held[name] = tuple(nodes), flow

    def unpin(self, name: str) -> None:
        del self.held[name]
        self.done.append(name)


# -- which ---------------------------------------------------------------------------------------


def test_pairs_that_were_used_within_a_week(archive: Archive) -> None:
    facts = [("mu>tacc", 1.0), ("tacc>mu", USED_S + 1), ("mu>mars", 1.0), ("mu>mu", 1.0)]
    archive.record_many(
        Measurement(f"{n}", "throughput", subject, 1.0, "bit/s", NOW - age, "transfer")
        for n, (subject, age) in enumerate(facts)
    )
    assert used_pairs(archive, ("mu", "tacc"), NOW) == [("mu", "tacc")]


def test_their_candidate_paths_are_tasks() -> None:
    network = demo_network()
    members = members_of(network)
    tasks = wanted_tasks([("mu", "tacc"), ("mu", "local")], members, network, {"every": "1 min"})
    assert {name: body["via"] for name, body in tasks.items()} == {
        "path:mu-tacc:1": L2, "path:mu-tacc:2": L3,
    }  # fmt: skip
    definition = definition_of("p", tasks["path:mu-tacc:1"], network, members)
    assert definition.nodes == tuple(PATH) and definition.subject == "mu>tacc via s1-s2"
    assert ("s1", "s2") in definition.task.links and definition.task.period_ms == 60_000
    elsewhere = {**members, "mu": RegisteredAgent("mu", "192.0.2.7", (5201, 5204))}
    assert wanted_tasks([("mu", "tacc")], elsewhere, network, {}) == {}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"via": ["s1", "s9"]}, "via: topology: no link between 's1' and 's9'"),
        ({"tool": "ping"}, "via: found it for ping, expected one of echo, tcp, udp"),
        ({"from": "local"}, "agent 'local' has the address 192.0.2.7, expected 10."),
    ],
)
def test_what_cannot_be_held_is_refused(more: dict[str, Any], said: str) -> None:
    network = demo_network()
    members = members_of(network) | {"local": RegisteredAgent("local", "192.0.2.7", (1, 2))}
    body = {**ECHO, "from": "mu", "to": "tacc", "via": L2, **more}
    with pytest.raises(InputError, match=r"^task 'p'") as caught:
        definition_of("p", body, network, members)
    assert said in str(caught.value)


# -- held ----------------------------------------------------------------------------------------


class HeldRig(CoordinatorRig):
    """Where the candidate paths are measured."""

    def __init__(self, folder: Path, network: Network, **more: Any) -> None:
        members = members_of(demo_network())
        super().__init__(folder, members=members, holder=network, paths={"every": "1 min"}, **more)

    def let_pass(self, seconds: float, step: float = 1.0) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + step)
            self.coordinator.sweep()
            self.coordinator.follow_paths()
            self.coordinator.hold_paths()


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def rig(tmp_path: Path, network: Network) -> Iterator[HeldRig]:
    made = HeldRig(tmp_path, network, tasks={})
    made.archive.record_many(
        [Measurement("t", "throughput", "mu>tacc", 1.0, "bit/s", made.clock.now, "transfer")]
    )
    yield made
    made.close()


def test_a_run_is_held_to_its_path_and_let_go(rig: HeldRig, network: Network) -> None:
    held: list[set[tuple[str, ...]]] = []
    for _ in range(90):
        rig.let_pass(1)
        rig.work("mu", "tacc")
        held.append({nodes for nodes, _ in network.held.values()})
    assert {nodes for now in held for nodes in now} == {tuple(PATH), ("mu", *L3, "tacc")}
    done = [run for run in rig.runs() if run.state is RunState.DONE]
    assert {run.subject for run in done} == {"mu>tacc via s1-s2", "mu>tacc via s1-r1-s2"}
    assert rig.archive.subjects("rtt") == ["mu>tacc via s1-r1-s2", "mu>tacc via s1-s2"]
    assert {f"probe:{run.id}" for run in done} <= {*network.done, *network.held}


def test_a_run_on_demand_is_held_as_well(rig: HeldRig, network: Network) -> None:
    rig.let_pass(1)
    rig.all_present()
    run = rig.coordinator.run_task("path:mu-tacc:1", ANYBODY, 60_000)
    for _ in range(60):
        rig.let_pass(1)
        rig.work("mu", "tacc")
    assert rig.coordinator.run(run.id).state is RunState.DONE
    assert f"probe:{run.id}" in network.done


def test_what_was_not_held_is_not_believed(rig: HeldRig, network: Network) -> None:
    network.refusal = "link s1-s2 has failed: port 10 of s1 is down"
    for _ in range(90):
        rig.let_pass(1)
        rig.work("mu", "tacc")
    failed = [run for run in rig.runs() if run.state is RunState.FAILED]
    assert failed and all(network.refusal in run.error for run in failed)
    assert rig.archive.subjects("rtt") == []


def test_paths_of_pairs_that_nobody_uses_any_more_are_left(rig: HeldRig) -> None:
    rig.let_pass(1)
    assert [task["name"] for task in rig.coordinator.tasks()] == [
        "path:mu-tacc:1", "path:mu-tacc:2",
    ]  # fmt: skip
    rig.clock.now += USED_S
    rig.let_pass(1)
    assert rig.coordinator.tasks() == []


def test_they_stay_within_the_agreement(tmp_path: Path, network: Network) -> None:
    made = HeldRig(tmp_path, network, tasks={}, agreement={"links": {"s1-r1": "1 b/s"}})
    made.archive.record_many(
        [Measurement("t", "throughput", "mu>tacc", 1.0, "bit/s", made.clock.now, "transfer")]
    )
    made.let_pass(1)
    assert [task["name"] for task in made.coordinator.tasks()] == ["path:mu-tacc:1"]
    made.close()


# -- on the switches -----------------------------------------------------------------------------

PORT = Flow("udp", None, (5201, 5201))


@pytest.fixture
def broker(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "s", matches=True)


def test_packets_are_led_over_a_path_without_a_rate(broker: Rig) -> None:
    path = ("mu", *L3, "tacc")
    until = broker.clock.now + 5
    broker.broker.pin("probe:1", path, PORT, until)
    circuit = broker.controller.circuits["probe:1"]
    assert (circuit.path, circuit.flows, circuit.min_bps) == (path, (PORT,), 0.0)
    assert circuit.lease_until == until and broker.reserved() == {} and broker.broker.list() == []
    assert broker.ask("a", "mu", "tacc").state is TransitState.INSTALLED
    assert code_of(broker.ask, "b", "mu", "tacc", flows=(Flow("udp", None, (5200, 5201)),)) == (
        "conflict"
    )
    broker.broker.unpin("probe:1")
    broker.broker.unpin("probe:1")
    assert list(broker.controller.circuits) == ["a"]
    broker.broker.pin("probe:2", path, PORT, until)
    broker.let_pass(5)
    assert list(broker.controller.circuits) == ["a"]


def test_what_nobody_can_hold(broker: Rig, tmp_path: Path) -> None:
    until = broker.clock.now + 5
    broker.ask("a", "mu", "tacc", flows=(PORT,))
    assert code_of(broker.broker.pin, "p", PATH, PORT, until) == "conflict"
    other = Flow("udp", None, (5202, 5202))
    broker.controller.fail("s1", "s2")
    broker.let_pass(1)
    assert code_of(broker.broker.pin, "p", PATH, other, until) == "conflict"
    broker.controller.failed = {}
    broker.let_pass(1)
    broker.controller.broken = refusing()
    assert code_of(broker.broker.pin, "p", PATH, other, until) == "controller_unavailable"
    broker.controller.broken = None
    broker.let_pass(6)
    assert list(broker.controller.circuits) == ["a"]
    assert code_of(Rig(tmp_path / "t").broker.pin, "p", PATH, other, until) == "conflict"
