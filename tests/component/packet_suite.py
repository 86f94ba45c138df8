"""What packets do under a controller, whichever driver it has: tests that a driver's own inherit.

Their ``rig`` is an :class:`~ovs_rig.OvsRig` with nothing installed.
"""

from __future__ import annotations

from ovs_rig import L2, L3, MBPS, OvsRig, load, sink, transfer

from examples.soykb.scenario import LAYOUT
from network_provisioner.base.controller import Circuit, Part
from network_provisioner.base.flows import Flow
from network_provisioner.topology.discovery import Discovered, Discovers, differences

WAYS = (("s1", "s2"), ("s1", "r1"))
"""The first hops of L2 and of L3, where best effort goes, too."""


def to_port(first: int, last: int = 0) -> tuple[Flow, ...]:
    return (Flow("tcp", None, (first, last or first)),)


def split(rig: OvsRig, **more: object) -> Circuit:
    """A circuit over both ways."""
    parts = (Part(L2, 40 * MBPS, 60 * MBPS), Part(L3, 15 * MBPS, 20 * MBPS))
    return rig.circuit(L2, "split", min_bps=55 * MBPS, max_bps=80 * MBPS, parts=parts, **more)


def best_effort(rig: OvsRig) -> int:
    """Bytes on s1's route from mu to tacc."""
    match = f"ip,nw_src={LAYOUT.host('mu').address},nw_dst={LAYOUT.host('tacc').address}"
    text = rig.network.switches.ofctl("s1", "dump-flows", match)
    route = next(line for line in text.splitlines() if "cookie=0xad0f" in line)
    return int(route.partition("n_bytes=")[2].partition(",")[0])


class CircuitsWithPackets:
    """Circuits on the testbed's network."""

    def test_traffic_takes_the_path_it_was_given(self, rig: OvsRig) -> None:
        l2, l3 = WAYS
        for circuits, hop, other in (
            ([], l3, l2),
            ([rig.circuit(L2)], l2, l3),
            ([rig.circuit(L3)], l3, l2),
        ):
            rig.controller.apply(circuits)
            before = rig.sent()
            counted = rig.controller.circuit_bytes("a")
            moved = transfer("mu", "tacc", 0.3)["bytes"]
            after = rig.sent()
            assert after[hop] - before[hop] >= moved
            assert after["s2", "tacc"] - before["s2", "tacc"] >= moved
            assert after[other] - before[other] < moved / 10
            if circuits:
                rig.counted("a", counted + moved)

    def test_transfers_between_the_same_hosts_take_paths_of_their_own(self, rig: OvsRig) -> None:
        # A range of ports becomes values under masks.
        fast = rig.circuit(L2, "fast", flows=to_port(5001, 5010))
        slow = rig.circuit(L3, "slow", flows=to_port(5020))
        rig.controller.apply([fast, slow])
        assert rig.controller.installed() == ["fast", "slow"]
        for port, hop, other, name in (
            (5003, *WAYS, "fast"),
            (5020, *WAYS[::-1], "slow"),
        ):
            before, counted = rig.sent(), rig.controller.circuit_bytes(name)
            moved = transfer("mu", "tacc", 0.3, port)["bytes"]
            after = rig.sent()
            assert after[hop] - before[hop] >= moved
            assert after[other] - before[other] < moved / 10
            rig.counted(name, counted + moved)
        # Everything else between the two takes neither: all of it is counted as best effort.
        named = {name: rig.controller.circuit_bytes(name) for name in ("fast", "slow")}
        before = best_effort(rig)
        moved = transfer("mu", "tacc", 0.3, 5030)["bytes"]
        rig.wait_for("count of best effort", lambda: best_effort(rig) - before >= moved)
        for name, counted in named.items():
            assert rig.controller.circuit_bytes(name) - counted < moved / 10

    def test_a_split_transfer_is_a_group_of_the_switch(self, rig: OvsRig) -> None:
        rig.controller.apply([split(rig)])
        assert rig.controller.installed() == ["split"]
        groups = rig.network.switches.ofctl("s1", "dump-groups")
        assert "type=select" in groups and "weight:73" in groups and "weight:27" in groups
        before = rig.sent()

        def both_ways() -> bool:
            # Which way a stream goes is chance: one of them may miss a way, 24 at once hardly do.
            streams = load("mu", "send", LAYOUT.host("tacc").address, 5001, 24, 0.05)
            assert streams.wait(240) == 0
            return all(rig.sent()[hop] > before[hop] + 1000 for hop in WAYS)

        with sink("tacc", 5001):
            rig.wait_for("streams on both ways", both_ways)
        rig.controller.apply([rig.circuit(L2, "split")])
        assert rig.controller.installed() == ["split"]
        assert "group_id" not in rig.network.switches.ofctl("s1", "dump-groups")

    def test_bytes_are_counted_on_when_a_circuit_is_changed(self, rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit(lease_until=rig.now() + 100)])
        moved = transfer("mu", "tacc", 0.3)["bytes"]
        rig.controller.apply([rig.circuit(lease_until=rig.now() + 200, max_bps=30 * MBPS)])
        moved += transfer("mu", "tacc", 0.3)["bytes"]
        rig.counted("a", moved)

    def test_it_finds_how_the_switches_are_joined_and_leaves_nothing(self, rig: OvsRig) -> None:
        rig.controller.apply([rig.circuit()])
        rules = {bridge: len(rig.flows(bridge)) for bridge in LAYOUT.switches}
        looked: list[Discovered] = []

        def crossed() -> bool:
            # Frames may be longer on the way than they are waited for.
            assert isinstance(rig.controller, Discovers)
            looked.append(rig.controller.discover())
            return bool(looked[-1].links)

        rig.wait_for("a frame that crossed", crossed)
        observation = looked[-1]
        assert differences(rig.topology, observation) == []
        assert observation.links == {
            ((1, 10), (2, 10))
        }  # the routed path lets no such frame through
        assert {n for n, port in observation.ports[1].items() if port.up} >= {1, 4, 10, 11}
        for bridge in LAYOUT.switches:
            assert len(rig.flows(bridge)) == rules[bridge]
            assert "0x88cc" not in rig.network.switches.ofctl(bridge, "dump-flows")
        assert rig.controller.installed() == ["a"]
