"""What ``ovs-vsctl`` is asked and says; what it makes of that is in the tests with a real Open
vSwitch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pytest
from controller_rig import FakeRig
from hypothesis import given
from hypothesis import strategies as st

from network_provisioner.base.controller import ControllerError
from network_provisioner.base.flows import Flow
from network_provisioner.controllers.backend import SwitchBackend
from network_provisioner.controllers.rules import (
    OWNER_SHIFT,
    STAMP_OWNER,
    TRANSIT_OWNER,
    Changes,
    FlowRule,
    is_stamp,
    make_cookie,
)
from network_provisioner.controllers.shaping.ovsdb import (
    LEAST_BUFFER,
    VsctlShaper,
    bridge_warnings,
    insecure_bridges,
)
from network_provisioner.controllers.shaping.shapes import DeviceShape, ShapeClass
from network_provisioner.controllers.switch_state import SwitchState

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
    count = len(vsctl.asked)
    shaper.grow([ONE])
    shaper.shrink([ONE])
    assert len(vsctl.asked) == count


def test_a_refusal_is_one_line() -> None:
    with pytest.raises(ControllerError, match=r"ovs-vsctl refused to shape: ovs-vsctl: no$"):
        VsctlShaper(Vsctl(1)).sync([ONE])


class Database(Vsctl):
    """Has a QoS and a queue of ours, and says which one the port has."""

    def __init__(self, on: str) -> None:
        super().__init__()
        self.on = on

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        if "find" in command:
            return 0, f"our-{command[command.index('find') + 1]}\n", ""
        if "list" in command:
            return 0, "adon-device=s1-a\n\nadon-device=s1-a\n", ""
        answer = super().ask(command)
        return (0, f"{self.on}\n", "") if "get" in command else answer


@pytest.mark.parametrize(("on", "cleared"), [("our-qos", True), ("theirs", False), ("[]", False)])
def test_the_qos_that_somebody_has_put_on_a_port_stays_there(on: str, cleared: bool) -> None:
    vsctl = Database(on)
    VsctlShaper(vsctl).remove(["s1-a", "s1-b"])  # of an earlier run
    last = vsctl.asked[-1]
    assert ("clear" in last) is cleared
    assert [last[i + 1 : i + 3] for i, w in enumerate(last) if w == "destroy"] == [
        ["qos", "our-qos"], ["queue", "our-queue"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gbps", "version", "works"),
    [(40, '"3.1.0"', False), (400, '"2.17.9"', False), (40, '"3.2.1"', True), (40, "[]", True),
     (25, '"3.1.0"', True)],
)  # fmt: skip
def test_a_link_is_not_held_to_what_is_left_of_its_rate_in_32_bits(
    gbps: int, version: str, works: bool
) -> None:
    class Versioned(Vsctl):
        def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
            said = super().ask(command)
            return (0, f"{version}\n", "") if command[-1] == "ovs_version" else said

    shaper, shape = VsctlShaper(Versioned()), replace(ONE, capacity_bps=gbps * 1e9)
    if works:
        shaper.begin([shape])
        return
    for step in (shaper.begin, shaper.sync, shaper.grow):
        with pytest.raises(ControllerError, match=r"s1-a at \d+ Gb/s: Open vSwitch [\d.]+ keeps"):
            step([shape])


def test_a_queue_that_somebody_changed_is_laid_again() -> None:
    database = Changed()
    shaper = VsctlShaper(database)
    assert shaper.sync([ONE]) == ["s1-a"]
    assert shaper.sync([ONE]) == []
    database.rates["uuid-2"]["max-rate"] = "1000"
    assert shaper.sync([ONE]) == ["s1-a"]
    database.numbers = [0]  # somebody took one out of the QoS
    assert shaper.sync([ONE]) == ["s1-a"]


def test_bridges_that_forward_without_a_controller_are_named() -> None:
    class Bridges(Vsctl):
        def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
            modes = {1: "secure", 2: "standalone", 3: ["set", []], 4: ["set", []], 5: "secure"}
            rows = [[f"{d:016x}", mode, d in {3, 5}, False] for d, mode in modes.items()]
            return self.code, json.dumps({"data": rows}), ""

    problems = insecure_bridges(Bridges(), {1, 2, 3, 5})
    assert problems.keys() == {2, 3, 5}
    assert problems[5].startswith("has stp_enable true, expected false: ")
    assert problems[3].startswith("has fail_mode standalone, expected secure: ")
    assert "; has stp_enable true, expected false: " in problems[3]
    with pytest.raises(ControllerError, match="does not answer: exit code 1"):
        insecure_bridges(Bridges(1), {1, 2, 3})
    with pytest.raises(ControllerError, match="answered what cannot be read"):
        insecure_bridges(Vsctl(), {1})


class Changed(Vsctl):
    """Says what its queues are, as ovs-vsctl prints JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: dict[str, dict[str, str]] = {}
        self.numbers = [0, 5]

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        if "--format=json" in command:
            maps = {uuid: ["map", list(map(list, r.items()))] for uuid, r in self.rates.items()}
            on = [[n, ["uuid", u]] for n, u in zip(self.numbers, self.rates, strict=False)]
            whole = ["map", [["max-rate", "200000000"]]]
            tables = (
                [[["uuid", u], m] for u, m in maps.items()],
                [[["uuid", "uuid-0"], ["map", on], whole]],
                [["s1-a", ["uuid", "uuid-0"]], ["s1", ["set", []]]],
            )
            return 0, "\n".join(json.dumps({"data": table}) for table in tables), ""
        if "create" not in command:
            return 0, "", ""
        steps = [s.split() for s in " ".join(command).split(" -- ") if " create queue " in s]
        pairs = [[w.partition(":")[2].split("=") for w in s if w[:6] == "other_"] for s in steps]
        self.rates = {f"uuid-{n}": dict(rates) for n, rates in enumerate(pairs, 1)}
        return 0, "\n".join(f"uuid-{n}" for n in range(len(steps) + 1)), ""


# -- settings that ``adon doctor`` warns of --------------------------------------------------------

UUID = ["uuid", "0e2a8b1c-0000-4000-8000-000000000001"]
EMPTY: list[Any] = ["set", []]
PORT = [["uuid", "p0"], "bond0", ["set", [["uuid", "i0"], ["uuid", "i1"]]]]


class Switches:
    """What ``ovs-vsctl --format=json list`` prints, and the kernel's buffer."""

    def __init__(self, bridge: list[Any], table: list[Any], buffer: int) -> None:
        self.bridge, self.table, self.buffer = bridge, table, buffer

    def ask(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        if command[0] == "cat":
            return 0, f"{self.buffer}\n", ""
        columns = next(word for word in command if word.startswith("--columns="))
        row = {"Bridge": self.bridge, "Port": PORT}.get(command[-1], self.table)
        data = {"headings": columns.partition("=")[2].split(","), "data": [row]}
        return 0, json.dumps(data), ""


SECURE = ["s1", "00000000000000a1", "netdev", "secure", False, False, ["map", []], ["set", []]]


def bridge(*changed: tuple[int, Any]) -> list[Any]:
    """That bridge, with other values in these columns."""
    values = dict(changed)
    return [values.get(column, value) for column, value in enumerate(SECURE)]


@pytest.mark.parametrize(
    ("bridge", "table", "buffer", "words"),
    [
        (SECURE, [UUID, EMPTY, EMPTY], LEAST_BUFFER, []),
        (bridge((2, "system"), (3, EMPTY)), [UUID, EMPTY, EMPTY], 1,
         ["s1: fail_mode is standalone, expected secure"]),
        (bridge((2, "system"), (5, True)), [UUID, EMPTY, EMPTY], 1,
         ["s1: rstp_enable is true, expected false"]),
        (bridge((7, ["uuid", "p0"])), [UUID, EMPTY, EMPTY], LEAST_BUFFER,
         ["s1: port bond0 is a bond, whose packets come in by several OpenFlow ports"]),
        (bridge((6, ["map", [[0, UUID]]])), [UUID, 10, "evict"],
         212_992, ["a flow table holds 10 rules and evicts", "send buffer of 212992 bytes"]),
        (bridge((1, "00000000000000a9"), (3, "standalone"), (4, True)), [UUID, 10, "evict"], 1, []),
    ],
)  # fmt: skip
def test_what_costs_rules_or_packets_is_named(
    bridge: list[Any], table: list[Any], buffer: int, words: list[str]
) -> None:
    warnings = bridge_warnings(Switches(bridge, table, buffer), {0xA1})
    assert len(warnings) == len(words)
    assert all(part in warning for part, warning in zip(words, warnings, strict=True))


def test_where_there_is_no_open_vswitch_nothing_is_said() -> None:
    assert bridge_warnings(Vsctl(1), {1}) == []


class Sent:
    """A backend that keeps the stamps that were sent to it."""

    def __init__(self) -> None:
        self.stamps: list[int] = []

    def send(self, batches: Mapping[int, Changes], now: float) -> None:
        for batch in batches.values():
            self.stamps += [rule.cookie for rule in batch.add if is_stamp(rule)]


def change(number: int) -> Changes:
    cookie = make_cookie(TRANSIT_OWNER, str(number))
    return Changes(add=(FlowRule(1, 200, "10.0.0.1", "10.0.0.2", 1, cookie),))


@given(st.integers(0, 2**30 - 1), st.integers(2, 60))
def test_changes_within_one_epoch_have_stamps_of_their_own(epoch: int, times: int) -> None:
    backend = Sent()
    beliefs = SwitchState(cast(SwitchBackend, cast(Any, backend)), lambda: 0.0)
    for number in range(times):
        beliefs.change(change(number), epoch)
    assert len(set(backend.stamps)) == times
    assert {stamp >> OWNER_SHIFT for stamp in backend.stamps} == {STAMP_OWNER}


@given(st.integers(0, 2**30 - 2))
def test_a_later_epoch_has_a_later_stamp(epoch: int) -> None:
    backend = Sent()
    first = SwitchState(cast(SwitchBackend, cast(Any, backend)), lambda: 0.0)
    second = SwitchState(cast(SwitchBackend, cast(Any, backend)), lambda: 0.0)
    for _ in range(5):
        first.change(change(1), epoch)
    second.change(change(2), epoch + 1)
    assert max(backend.stamps) == backend.stamps[-1]


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    with closing(FakeRig()) as made:
        made.controller.start(60.0)
        yield made


def test_a_change_costs_the_same_however_many_circuits_live(rig: FakeRig) -> None:
    """What a switch is asked and told, and how many rules it has to list."""
    cost = {}
    for live in (10, 300):
        circuits = [
            replace(rig.circuit(f"c{i}", 0.001), flows=(Flow("tcp", None, (5000 + i, 5000 + i)),))
            for i in range(live)
        ]
        rig.controller.apply(circuits)
        heard: list[int] = []
        listed = rig.s1.listed
        rig.s1.on_message = heard.append
        rig.controller.apply([*circuits[1:], rig.circuit("new", 0.001)])
        rig.s1.on_message = lambda kind: None
        cost[live] = len(heard), rig.s1.listed - listed
    assert cost[10][1] == cost[300][1] == 1  # the stamp
    # Of those that share marks, a few move to the one that has become free.
    assert cost[10][0] <= 10 and cost[300][0] <= 30


def test_what_somebody_else_changed_is_seen_by_the_stamp(rig: FakeRig) -> None:
    circuit = rig.circuit()
    rig.controller.apply([circuit])
    for switch in (rig.s1, rig.s2):
        for key, entry in list(switch.table.items()):
            if entry.cookie >> 48 == 0xAD0E:
                del switch.table[key]
            elif entry.cookie >> 48 == 0xAD0C:
                switch.put(replace(entry, cookie=entry.cookie + (1 << 16)))
    assert rig.controller.installed() == []
    rig.controller.apply([circuit])
    assert rig.controller.installed() == ["a"]
