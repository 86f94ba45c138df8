"""What every driver has to do, as tests that a driver's own tests inherit.

    class TestMyDriver(ControllerConformance):
        @pytest.fixture
        def rig(self): ...  # yields a Rig whose controller is started

The suite needs nothing but the Protocol, so it is plain ``assert`` and can run under any test
runner that finds methods named ``test_*`` and hands in a ``rig``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from network_provisioner.base.controller import Circuit, Controller, ControllerError, Part, Queue
from network_provisioner.base.flows import Flow
from network_provisioner.topology.graph import Topology


class Rig(Protocol):
    """A started controller and the network under it.

    ``topology`` joins at least two pairs of sites whose paths meet on one link.
    """

    controller: Controller
    topology: Topology

    def now(self) -> float:
        """Unix seconds, as the controller sees them."""
        ...

    def wait_for(self, what: str, check: Callable[[], bool]) -> None:
        """Let time pass until ``check`` holds. Raises TimeoutError after a while."""
        ...

    def restart_switches(self) -> None:
        """End the switches without warning, all rules with them, and start them again."""
        ...


class ControllerConformance:
    """The behaviour that :class:`~network_provisioner.base.controller.Controller` promises."""

    def test_circuits_come_and_go_and_asking_twice_changes_nothing(self, rig: Rig) -> None:
        wanted = [circuit(rig, "a"), circuit(rig, "b", pair=1)]
        for circuits in (wanted, wanted, wanted[::-1]):
            rig.controller.apply(circuits)
            assert rig.controller.installed() == ["a", "b"]
        rig.controller.apply([])
        assert rig.controller.installed() == []

    def test_circuits_between_the_same_sites_share(self, rig: Rig) -> None:
        first, second = circuit(rig, "a"), circuit(rig, "b")
        back = replace(first, id="back", path=first.path[::-1])
        rig.controller.apply([first, second, back])
        assert rig.controller.installed() == ["a", "b", "back"]
        for left in (second, back):
            rig.controller.apply([left])
            assert rig.controller.installed() == [left.id]

    def test_a_circuit_can_move_to_another_path(self, rig: Rig) -> None:
        for path in paths(rig, 0):
            rig.controller.apply([replace(circuit(rig, "a"), path=path)])
            assert rig.controller.installed() == ["a"]

    def test_what_cannot_be_had_is_refused_as_a_whole(self, rig: Rig) -> None:
        good = circuit(rig, "a")
        rig.controller.apply([good])
        capacity = rig.topology.path(good.path).capacity_bps
        for bad in (
            replace(good, id="x", min_bps=2 * capacity, max_bps=2 * capacity),
            replace(good, id="x", path=paths(rig, 0)[1]),  # two for what cannot be told apart
            replace(good, id="x", path=("nowhere", *good.path[1:])),
            replace(good, id="x", path=good.path[:1]),
            replace(good, id="x", min_bps=-1.0),
            replace(good, id="x", min_bps=2.0, max_bps=1.0),
            replace(good, id="x", min_bps=float("nan")),
            good,
        ):
            self._refused(rig, [good, circuit(rig, "c", pair=1), bad])
        assert rig.controller.installed() == ["a"]

    def test_leases_end_by_themselves(self, rig: Rig) -> None:
        long = circuit(rig, "long", pair=1)
        rig.controller.apply([circuit(rig, "late", lease_s=-1.0), long])
        assert rig.controller.installed() == ["long"]
        if not rig.controller.capabilities().flow_leases:
            return

        def both() -> bool:
            # On a busy machine so short a lease may end before anybody sees it.
            rig.controller.apply([circuit(rig, "short", lease_s=4.0), long])
            return rig.controller.installed() == ["long", "short"]

        rig.wait_for("both", both)
        rig.wait_for("end of the lease", lambda: rig.controller.installed() == ["long"])

    def test_a_lease_can_be_renewed(self, rig: Rig) -> None:
        rig.controller.apply([circuit(rig, "a", lease_s=1.0), circuit(rig, "b", 1, lease_s=1.0)])
        rig.controller.apply([circuit(rig, "a"), circuit(rig, "b", 1, lease_s=1.0)])
        rig.wait_for("end of b's lease", lambda: rig.controller.installed() == ["a"])

    def test_circuits_come_back_after_a_restart_of_the_switches(self, rig: Rig) -> None:
        rig.controller.apply([circuit(rig, "a"), circuit(rig, "b", pair=1)])
        rig.restart_switches()
        rig.wait_for("resync", lambda: rig.controller.installed() == ["a", "b"])

    def test_unknown_circuits_have_no_bytes(self, rig: Rig) -> None:
        rig.controller.apply([circuit(rig, "a")])
        assert rig.controller.circuit_bytes("a") >= 0
        assert rig.controller.circuit_bytes("unknown") == 0

    def test_counters_cover_every_direction_a_switch_sends_into(self, rig: Rig) -> None:
        counted = {(c.a, c.b) for c in rig.controller.counters()}
        expected = {
            (switch, link.other(switch))
            for link in rig.topology.links
            for switch in link.ports or {}
        }
        assert counted == expected

    def test_many_threads(self, rig: Rig) -> None:
        wanted = [circuit(rig, "a"), circuit(rig, "b", pair=1)]
        errors: list[Exception] = []

        def work() -> None:
            try:
                for _ in range(5):
                    rig.controller.apply(wanted)
                    assert rig.controller.installed() == ["a", "b"]
                    rig.controller.circuit_bytes("a")
                    rig.controller.counters()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []

    def test_a_door_guarantees_nothing_and_is_always_there(self, rig: Rig) -> None:
        """Circuits of 0 b/s fit beside any others."""
        full = circuit(rig, "full")
        rate = rig.topology.path(full.path).capacity_bps
        full = replace(full, min_bps=rate, max_bps=rate)
        door = replace(circuit(rig, "door", pair=1), min_bps=0.0)
        rig.controller.apply([full, door])
        assert rig.controller.installed() == ["door", "full"]
        rig.controller.apply([door])
        assert rig.controller.installed() == ["door"]

    def test_transfers_of_one_pair_take_paths_of_their_own(self, rig: Rig) -> None:
        if not rig.controller.capabilities().matches:
            return
        first, second = paths(rig, 0)[:2]
        wanted = [
            replace(circuit(rig, "one", share=0.01), path=first, flows=to_port(5001)),
            replace(circuit(rig, "two", share=0.01), path=second, flows=to_port(5002, 5009)),
            replace(circuit(rig, "rest", share=0.01), path=second),
        ]
        rig.controller.apply(wanted)
        assert rig.controller.installed() == ["one", "rest", "two"]
        rig.controller.apply([replace(wanted[0], path=second), *wanted[2:]])
        assert rig.controller.installed() == ["one", "rest"]
        rig.restart_switches()
        rig.wait_for("resync", lambda: rig.controller.installed() == ["one", "rest"])

    def test_transfers_that_cannot_be_told_apart_are_refused(self, rig: Rig) -> None:
        if not rig.controller.capabilities().matches:
            return
        first = replace(circuit(rig, "one", share=0.01), flows=to_port(5001, 5010))
        same = replace(first, id="same")
        rig.controller.apply([first, same])
        assert rig.controller.installed() == ["one", "same"]
        self._refused(rig, [first, replace(first, id="other", flows=to_port(5010))])
        other_path = replace(same, path=paths(rig, 0)[1])
        self._refused(rig, [first, other_path])
        assert rig.controller.installed() == ["one", "same"]

    def test_a_circuit_is_split_and_joined(self, rig: Rig) -> None:
        whole = circuit(rig, "a", share=0.01)
        parts = tuple(Part(path, 1000.0, 2000.0) for path in paths(rig, 0)[:2])
        split = replace(whole, min_bps=2000.0, max_bps=4000.0, parts=parts)
        if not rig.controller.capabilities().multipath:
            self._refused(rig, [split])
            return
        for wanted in (split, whole, split):
            rig.controller.apply([wanted])
            assert rig.controller.installed() == ["a"]
        self._refused(rig, [replace(split, path=paths(rig, 0)[1])])
        assert rig.controller.installed() == ["a"]
        rig.restart_switches()
        rig.wait_for("resync", lambda: rig.controller.installed() == ["a"])

    def test_queues_come_change_and_go(self, rig: Rig) -> None:
        member = replace(circuit(rig, "a"), queue="gold")
        capacity = rig.topology.path(member.path).capacity_bps
        hop = next(
            hop
            for hop in rig.topology.path(member.path).hops
            if rig.topology.nodes[hop[0]].kind == "switch"
        )
        gold = Queue("gold", hop, 0.7 * capacity, capacity)
        rest = Queue("rest", hop, 0.0, 0.3 * capacity, prio=1, parent="gold")
        if not rig.controller.capabilities().queues:
            self._refused(rig, [member], [gold])
            return
        for queues in ([gold], [gold, rest], [replace(gold, rate_bps=capacity), rest], []):
            rig.controller.apply([member], queues)
            assert rig.controller.installed() == ["a"]
        for nonsense in ([rest], [gold, gold], [replace(gold, ceil_bps=1.0)]):
            self._refused(rig, [member], nonsense)
        assert rig.controller.installed() == ["a"]

    def test_clear_removes_every_circuit_and_more_can_come(self, rig: Rig) -> None:
        wanted = [circuit(rig, "a")]
        for _ in range(2):
            rig.controller.apply(wanted)
            assert rig.controller.installed() == ["a"]
            rig.controller.clear()
            assert rig.controller.installed() == []

    def test_stop_and_start_again(self, rig: Rig) -> None:
        rig.controller.apply([circuit(rig, "a")])
        rig.controller.stop()
        rig.controller.stop()
        self._refused(rig, [circuit(rig, "a")])
        rig.controller.start(20.0)
        assert rig.controller.installed() == []
        rig.controller.apply([circuit(rig, "a")])
        assert rig.controller.installed() == ["a"]

    @staticmethod
    def _refused(rig: Rig, circuits: list[Circuit], queues: Sequence[Queue] = ()) -> None:
        try:
            rig.controller.apply(circuits, queues)
        except ControllerError as error:
            assert "\n" not in str(error)
        else:
            raise AssertionError(f"{circuits} with {list(queues)} were not refused")


def paths(rig: Rig, pair: int) -> list[tuple[str, ...]]:
    """The paths between the first pair of sites on different switches, or between the second."""
    sites = rig.topology.sites
    far = [
        candidates
        for i, src in enumerate(sites)
        for dst in sites[i + 1 :]
        if len(candidates := rig.topology.candidate_paths(src, dst)) > 1
    ]
    return [path.nodes for path in far[pair]]


def circuit(
    rig: Rig, name: str, pair: int = 0, lease_s: float = 300.0, share: float = 0.1
) -> Circuit:
    """A circuit on the first path of a pair of sites, of that share of its capacity."""
    path = paths(rig, pair)[0]
    rate = rig.topology.path(path).capacity_bps * share
    return Circuit(name, path, rate, 2 * rate, rig.now() + lease_s)


def to_port(first: int, last: int = 0) -> tuple[Flow, ...]:
    """TCP to a range of ports."""
    return (Flow("tcp", None, (first, last or first)),)
