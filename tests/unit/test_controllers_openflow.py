from __future__ import annotations

import logging
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from controller_rig import PATH, FakeRig, RecordingShaper
from controller_worlds import MBPS, two_switches
from fake_switch import ECHO_REPLY, ECHO_REQUEST, GROUP_DESC, PORT_STATS, FakeSwitch

from examples.testbed.ports import free_port
from network_provisioner.base.controller import Circuit, ControllerError, Part
from network_provisioner.base.errors import InputError
from network_provisioner.base.flows import Flow
from network_provisioner.controllers import reconcile, switched
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.controllers.match import MOST
from network_provisioner.controllers.openflow import connections, wire
from network_provisioner.controllers.openflow.connections import parse_listen
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.openflow.scan import Scan
from network_provisioner.controllers.rules import (
    FLOW_PRIORITY,
    OWNER_SHIFT,
    ROUTE_OWNER,
    TRANSIT_OWNER,
    TRANSIT_PRIORITY,
    UNCOUNTED,
    Changes,
    Meter,
)
from network_provisioner.controllers.shaping.shapes import DeviceShape
from network_provisioner.topology.graph import Topology

L3 = ("mu", "s1", "r1", "s2", "tacc")


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    with closing(FakeRig()) as made:
        made.controller.start(60.0)
        yield made


class TestOpenFlow(ControllerConformance):
    """Everything that every driver has to do."""


def test_a_refusal_names_the_switch_and_puts_back_what_was_there(rig: FakeRig) -> None:
    before = rig.circuit("a")
    rig.controller.apply([before])
    shapes = dict(rig.shaper.laid)
    tables = rig.cookies(rig.s1)
    rig.s2.refuse_adds = True
    back = Circuit("b", ("tacc", "s2", "s1", "local"), MBPS, MBPS, rig.now() + 60)
    with pytest.raises(
        ControllerError, match=r"switch s2 \(dpid 0x2\) refused the rule 10.10"
    ) as e:
        rig.controller.apply([before, back])
    assert "OFPFMFC_TABLE_FULL" in str(e.value)
    assert rig.cookies(rig.s1) == tables
    assert rig.controller.installed() == ["a"]
    assert rig.shaper.laid == shapes
    rig.s2.refuse_adds = False
    rig.controller.apply([before, back])
    assert rig.controller.installed() == ["a", "b"]


def test_a_shaper_that_refuses_leaves_the_rules_alone(rig: FakeRig) -> None:
    rig.shaper.broken = True
    with pytest.raises(ControllerError, match="tc refused"):
        rig.controller.apply([rig.circuit()])
    assert rig.owners(rig.s1) == [ROUTE_OWNER] * 6
    rig.shaper.broken = False
    rig.controller.apply([rig.circuit()])
    assert rig.controller.installed() == ["a"]


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a switch or its devices refused is tried again at once."""
    monkeypatch.setattr(switched, "RETRY_S", 0.01)


@pytest.fixture
def short_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that connects and says nothing is hung up on soon, and connects again."""
    monkeypatch.setattr(connections, "_HANDSHAKE_S", 1.0)


def test_a_switch_that_does_not_answer_is_an_error_and_resynced(
    rig: FakeRig, short_handshakes: None
) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.s2.silent = True
    rig.wait_at_most(1.0)
    with pytest.raises(ControllerError, match=r"switch s2 \(dpid 0x2\): no answer within 1 s"):
        rig.controller.apply([rig.circuit("a"), rig.circuit("b")])
    rig.wait_at_most(30.0)
    rig.s2.silent = False
    rig.wait_for("return of s2", lambda: rig.controller.installed() == ["a"])


def test_circuits_need_their_switches_and_removal_does_not(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.s2.close()
    rig.wait_for("loss of s2", lambda: rig.openflow._switches.connected() == {1})
    assert rig.controller.installed() == []
    with pytest.raises(ControllerError, match=r"switch s2 \(dpid 0x2\) is not connected"):
        rig.controller.apply([rig.circuit("a"), rig.circuit("b")])
    rig.controller.apply([])
    assert TRANSIT_OWNER not in rig.owners(rig.s1)
    rig.s2 = FakeSwitch(rig.port, 2, [2, 10, 11], rig.now, table=rig.s2.table)
    rig.wait_for("removal on s2", lambda: rig.owners(rig.s2) == [ROUTE_OWNER] * 4)


def test_a_restarted_controller_finds_its_circuits_until_it_is_said_what_is_wanted(
    rig: FakeRig,
) -> None:
    circuit = rig.circuit("a")
    rig.controller.apply([circuit])
    sent = rig.s1.mods
    for wanted in ([circuit], []):
        rig.openflow._running = False
        rig.openflow._disconnect()  # as if it had been killed
        rig.controller = rig.openflow = rig.new_controller()
        rig.controller.start(60.0)
        assert TRANSIT_OWNER in rig.owners(rig.s1)
        rig.controller.apply(wanted)
        assert rig.controller.installed() == [c.id for c in wanted]
        assert (rig.s1.mods == sent) == bool(wanted)
    assert rig.owners(rig.s1) == [ROUTE_OWNER] * 6


def test_routes_that_are_others_by_now_stay_until_it_is_said_what_is_wanted(rig: FakeRig) -> None:
    rig.controller.apply([])
    rig.openflow._running = False
    rig.openflow._disconnect()
    key, planned = next(
        (k, e) for k, e in rig.s1.table.items() if e.cookie >> OWNER_SHIFT == ROUTE_OWNER
    )
    earlier = replace(planned, cookie=ROUTE_OWNER << OWNER_SHIFT | 7)  # along another path
    rig.s1.table[key] = earlier
    rig.controller = rig.openflow = rig.new_controller()
    rig.controller.start(60.0)
    assert rig.s1.table[key].cookie == earlier.cookie
    rig.controller.apply([])
    assert rig.s1.table[key].cookie == planned.cookie


def test_rules_of_others_stay_and_strange_ones_of_ours_go(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    entry = next(iter(rig.s1.table.values()))
    other = replace(entry, cookie=0x1234, priority=7)
    strange = replace(
        entry,
        cookie=ROUTE_OWNER << OWNER_SHIFT | 1,
        priority=8,
        rest=struct.pack("!HH4x", 1, 4),  # a match for everything, no instructions
        match=struct.pack("!HH", 1, 4),
    )
    rig.s1.put(other)
    rig.s1.put(strange)
    rig.s1.hang_up()
    rig.wait_for("removal", lambda: (8, strange.match) not in rig.s1.table)
    rig.controller.clear()
    assert list(rig.s1.table) == [(7, other.match)]


def test_bytes_of_one_circuit_are_exact_and_shared_ones_add_up(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a", 60)])
    # Behind the match's header, the port and the Ethernet type is the source address.
    mu = bytes([10, 10, 0, 1])
    key = next(k for k in rig.s1.table if k[0] == TRANSIT_PRIORITY and k[1][22:26] == mu)
    rig.s1.table[key].bytes = 1000
    assert rig.controller.circuit_bytes("a") == 1000
    rig.controller.apply([rig.circuit("a", 60), rig.circuit("b", 20)])
    rig.s1.table[key].bytes = 1400
    assert rig.controller.circuit_bytes("a") == 1300
    assert rig.controller.circuit_bytes("b") == 100
    rig.controller.apply([rig.circuit("b", 20)])
    assert rig.controller.circuit_bytes("a") == 0
    rig.s1.table[key].bytes = 1500
    assert rig.controller.circuit_bytes("b") == 200


def test_bytes_are_kept_when_a_circuit_names_other_flows(rig: FakeRig) -> None:
    named = [
        replace(rig.circuit("a"), flows=(Flow("tcp", None, (port, port)),)) for port in (5001, 5002)
    ]
    for circuit, n_bytes in zip(named, (1000, 300), strict=True):
        rig.controller.apply([circuit])
        mu = bytes([10, 10, 0, 1])
        data = {k for k in rig.s1.table if k[0] == FLOW_PRIORITY and mu in k[1]}
        for key in data:
            rig.s1.table[key].bytes = n_bytes
        assert data
    assert rig.controller.circuit_bytes("a") == 1300


def test_counters_are_read_from_the_ports(rig: FakeRig) -> None:
    counted = {(c.a, c.b): c.bytes for c in rig.controller.counters()}
    assert counted["s1", "s2"] == 1010 and counted["s2", "s1"] == 1010
    assert counted["s1", "r1"] == 1011 and counted["s1", "mu"] == 1001


def test_what_a_switch_does_not_count_is_not_known(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.s1.change(lambda entry: replace(entry, bytes=UNCOUNTED))
    rig.s1.carried = dict.fromkeys([1, 4, 10, 11], (UNCOUNTED, UNCOUNTED))
    assert rig.controller.circuit_bytes("a") == 0 and rig.openflow.is_uncounted("a")
    assert rig.openflow.hop_bytes(["a"]) == {}
    assert {c.a for c in rig.controller.counters()} == {"s2"}


def test_a_switch_without_groups_and_counters_has_circuits_all_the_same(
    rig: FakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.s1.unknown = {GROUP_DESC, PORT_STATS}
    rig.controller.apply([rig.circuit("a")])
    assert rig.controller.installed() == ["a"]
    assert rig.openflow._bring_up_to_date(1, set()) is not None
    assert {c.a for c in (*rig.controller.counters(), *rig.controller.counters())} == {"s2"}
    assert len([line for line in caplog.messages if "not counted" in line]) == 1


def test_the_end_of_a_lease_frees_its_class(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a", lease_s=30)])
    assert len(rig.shaper.laid["s1-a"].classes) == 1
    rig.wait_for("free class", lambda: rig.shaper.laid["s1-a"].classes == ())
    rig.wait_for("the rules' end", lambda: TRANSIT_OWNER not in rig.owners(rig.s1))


def test_garbage_and_echoes_do_not_disturb(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.s1.say(struct.pack("!BBHI", 4, ECHO_REQUEST, 12, 77) + b"ping")
    rig.s1.say(struct.pack("!BBHI", 4, 99, 8, 0))
    assert rig.controller.installed() == ["a"]
    before = rig.s1.connections
    rig.s1.say(struct.pack("!BBHI", 4, 2, 3, 0))  # shorter than its own header
    rig.wait_for("end of the connection", lambda: rig.s1.connections > before)
    rig.wait_for("new connection", lambda: rig.controller.installed() == ["a"])
    with socket.create_connection(("127.0.0.1", rig.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(8)  # our hello
    stray = FakeSwitch(rig.port, 99, [])
    rig.controller.apply([rig.circuit("a"), rig.circuit("b")])
    stray.close()
    assert rig.controller.installed() == ["a", "b"]


def test_a_message_that_ends_with_the_connection_is_not_called_nonsense(
    rig: FakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    flows = struct.pack("!BBHIHH4x", 4, 19, 1000, 0, 1, 0)
    rig.s1.say(flows + bytes(10))
    rig.s1.hang_up()
    rig.wait_for("its end", lambda: "switch s1 (dpid 0x1) disconnected" in caplog.text)
    assert "it sent" not in caplog.text


def test_without_one_switch_the_others_serve_and_it_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = FakeRig()
    rig.s2.close()
    try:
        rig.controller.start(0.5)
        assert "switch s2 (dpid 0x2) to connect to " in caplog.text
        rig.wait_for("s1", lambda: rig.owners(rig.s1) == [ROUTE_OWNER] * 6)
        rig.controller.apply([])
        here = Circuit("here", ("mu", "s1", "local"), MBPS, MBPS, rig.now() + 600)
        rig.controller.apply([here])
        with pytest.raises(ControllerError, match=r"switch s2 \(dpid 0x2\) is not connected"):
            rig.controller.apply([here, rig.circuit("over")])
        assert rig.controller.installed() == ["here"]
        rig.wait_for("what is said of s2", lambda: not rig.openflow.switches()[1].connected)
        rig.s2 = FakeSwitch(rig.port, 2, [2, 10, 11], rig.now)
        rig.wait_for("s2", lambda: rig.owners(rig.s2) == [ROUTE_OWNER] * 4)
        rig.controller.apply([here, rig.circuit("over")])
        assert rig.controller.installed() == ["here", "over"]
    finally:
        rig.close()


def test_a_restart_leaves_the_rules_and_shaping(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    tables = rig.cookies(rig.s1), rig.cookies(rig.s2), dict(rig.shaper.laid)
    rig.controller.stop()
    assert (rig.cookies(rig.s1), rig.cookies(rig.s2), rig.shaper.laid) == tables


def test_rules_that_somebody_deletes_come_back_and_are_counted(
    rig: FakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.controller.apply([rig.circuit("a")])
    before = rig.cookies(rig.s2)
    rig.s2.lose()
    rig.wait_for("the rules", lambda: rig.cookies(rig.s2) == before)
    rig.wait_for("the count", lambda: rig.openflow.switches()[1].repairs == {"rules": len(before)})
    assert rig.openflow.switches()[0].repairs == {}
    (line,) = [r.getMessage() for r in caplog.records if "repaired" in r.getMessage()]
    assert line.startswith(f"switch s2 (dpid 0x2) was repaired: {len(before)} rules were missing")


def contents(switch: FakeSwitch) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    """What the rules but the stamp do, whatever their age."""
    stamp = b"\x88\xb6"
    with switch.lock:
        return {k: (e.cookie, e.rest) for k, e in switch.table.items() if stamp not in e.match}


def groups_gone(switch: FakeSwitch) -> None:
    with switch.lock:
        switch.groups.clear()


def weights_changed(switch: FakeSwitch) -> None:
    with switch.lock:
        for number, body in switch.groups.items():
            switch.groups[number] = body[:10] + struct.pack("!H", 7) + body[12:]


def rules_gone(switch: FakeSwitch) -> None:
    switch.lose(quietly=True)


def rules_changed(switch: FakeSwitch) -> None:
    """As ``ovs-ofctl mod-flows`` does: a cookie stays."""
    switch.change(lambda e: replace(e, rest=e.match.ljust(-(-len(e.match) // 8) * 8)))


def rules_overwritten(switch: FakeSwitch) -> None:
    switch.change(lambda e: replace(e, cookie=7))


@pytest.mark.parametrize(
    "harm", [rules_gone, rules_changed, rules_overwritten, groups_gone, weights_changed]
)
def test_what_nobody_tells_of_is_found_by_looking(
    rig: FakeRig, harm: Callable[[FakeSwitch], None], caplog: pytest.LogCaptureFixture
) -> None:
    parts = (Part(PATH, MBPS, 2 * MBPS), Part(L3, MBPS, 2 * MBPS))
    rig.controller.apply([Circuit("a", PATH, 2 * MBPS, 4 * MBPS, rig.now() + 600, parts=parts)])
    before = contents(rig.s1), dict(rig.s1.groups)
    assert rig.s1.groups
    rig.check_often()
    harm(rig.s1)
    rig.wait_for("the repair", lambda: bool(rig.openflow.switches()[0].repairs))
    rig.wait_for("all as before", lambda: (contents(rig.s1), rig.s1.groups) == before)
    assert rig.openflow.switches()[1].repairs == {}
    (line,) = [r.getMessage() for r in caplog.records if "repaired" in r.getMessage()]
    assert line.startswith("switch s1 (dpid 0x1) was repaired: ")


@pytest.mark.usefixtures("soon_again")
def test_devices_that_refuse_are_a_problem_of_their_switch_alone(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.controller.apply([rig.circuit("a")])
    sync = rig.shaper.sync

    def refuses(shapes: Iterable[DeviceShape]) -> list[str]:
        wanted = list(shapes)
        if any(shape.switch == "s2" for shape in wanted):
            raise ControllerError("tc refused to shape: no")
        return sync(wanted)

    with monkeypatch.context() as broken:
        broken.setattr(rig.shaper, "sync", refuses)
        rig.check_often()
        said = "is not up to date: tc refused to shape: no"
        rig.wait_for("the news", lambda: rig.openflow.switches()[1].problem == said)
        assert rig.openflow.switches()[0].problem == ""
    rig.wait_for("the end of it", lambda: rig.openflow.switches()[1].problem == "")


def test_classes_that_somebody_changes_are_found_by_looking(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    before = dict(rig.shaper.laid)
    rig.shaper.laid["s2-a"] = replace(before["s2-a"], classes=())
    rig.check_often()
    rig.wait_for("the repair", lambda: bool(rig.openflow.switches()[1].repairs))
    assert rig.shaper.laid == before
    assert rig.openflow.switches()[1].repairs == {"devices' classes": 1}
    assert rig.openflow.switches()[0].repairs == {}


def test_whatever_a_shaper_meets_is_reported_and_rules_are_kept_up_to_date(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def garbled(_: object) -> list[str]:
        raise ValueError("no JSON")

    rig.controller.apply([])
    rig.openflow._inspect = garbled  # type: ignore[assignment]
    monkeypatch.setattr(rig.shaper, "sync", garbled)
    assert rig.openflow._check_devices() is None
    assert {s.problem for s in rig.openflow.switches()} == {"is not up to date: no JSON"}
    monkeypatch.undo()
    assert rig.openflow._check_devices() is False
    assert {s.problem for s in rig.openflow.switches()} == {""}


def test_links_that_one_round_misses_are_no_news_and_more_are_told_once(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = iter(["it has gone", "", "no answer", "no answer", "no answer"])

    def look() -> None:
        error = next(rounds, None)
        if error is None:
            rig.openflow._stopping.set()
        elif error:
            raise ControllerError(error)

    monkeypatch.setattr(rig.openflow, "_look_once", look)
    rig.openflow._switches.watch_s = 0.0
    rig.openflow._look()
    warnings = [line for line in caplog.messages if "not watched" in line]
    assert warnings == ["links are not watched: no answer"]


def test_a_switch_that_has_what_it_should_is_not_read_rule_by_rule(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "CHECK_S", 3600.0)
    rig.controller.apply([rig.circuit("a")])
    looks = Counter[int]()
    look = rig.openflow._switches.fingerprint
    monkeypatch.setattr(
        rig.openflow._switches, "fingerprint", lambda d: (looks.update([d]), look(d))[1]
    )
    rig.check_often()
    rig.wait_for("some looks", lambda: min(looks[1], looks[2]) > 3)
    monkeypatch.setattr(rig.openflow._switches, "read_rules", None)
    first = dict(looks)
    rig.wait_for("more of them", lambda: min(looks[1] - first[1], looks[2] - first[2]) > 3)
    monkeypatch.undo()
    assert [s.problem for s in rig.openflow.switches()] == ["", ""]


def test_a_plan_that_cannot_be_made_is_reported_and_ends_no_thread(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_plan() -> None:
        raise ControllerError("no marks are left")

    monkeypatch.setattr(rig.openflow._reconciler, "plan", no_plan)
    assert rig.openflow._bring_up_to_date(1, set()) is None
    assert rig.openflow.switches()[0].problem == "is not up to date: no marks are left"


def test_a_port_that_somebody_else_has_is_named(rig: FakeRig) -> None:
    other = rig.new_controller()
    busy = rf"cannot listen for .* 127.0.0.1:{rig.port}: Address already in use; expected"
    with pytest.raises(ControllerError, match=busy):
        other.start(1.0)
    rig.controller.apply([rig.circuit("a")])


def test_how_switches_are_configured_is_reported(rig: FakeRig) -> None:
    problems = {2: "has fail_mode standalone, expected secure"}
    rig.openflow._inspect = lambda dpids: dict(problems)
    rig.check_often()
    rig.wait_for("the news", lambda: rig.openflow.switches()[1].problem == problems[2])
    assert rig.openflow.switches()[0].problem == "" and rig.openflow.switches()[1].connected
    problems.clear()
    rig.openflow._inspect_at = 0.0
    rig.wait_for("the end of it", lambda: rig.openflow.switches()[1].problem == "")


@pytest.mark.usefixtures("soon_again")
@pytest.mark.parametrize("evicts", [False, True])
def test_a_table_without_room_is_reported_and_nothing_new_needs_it(
    rig: FakeRig, evicts: bool
) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.s2.evicts, rig.s2.size = evicts, len(rig.s2.table)
    rig.check_often()
    rig.wait_for("what was measured", lambda: 2 in rig.openflow._reconciler._room)
    room = rig.openflow._reconciler._room[2]
    other = replace(rig.circuit("b"), flows=(Flow("tcp", None, (5001, 5001)),))
    with pytest.raises(ControllerError, match=rf"s2 .*has room for {room} rules of ours in its"):
        rig.controller.apply([rig.circuit("a"), other])
    assert rig.controller.installed() == ["a"]
    rig.s2.size -= 1
    rig.s2.lose(cookies=lambda cookie: cookie >> OWNER_SHIFT == ROUTE_OWNER)
    rig.wait_for("the news", lambda: "flow table" in rig.openflow.switches()[1].problem)
    rig.s2.size += 100
    rig.controller.apply([])
    rig.wait_for("the end of it", lambda: rig.openflow.switches()[1].problem == "")
    rig.controller.apply([rig.circuit("a"), other])


def test_a_table_that_has_room_again_is_used_at_once(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.s2.size = len(rig.s2.table)
    with rig.openflow._lock:
        rig.openflow._reconciler._note_room(2)  # as the check every 30 s does
    other = replace(rig.circuit("b"), flows=(Flow("tcp", None, (5001, 5001)),))
    with pytest.raises(ControllerError, match=r"s2 .*has room for"):
        rig.controller.apply([rig.circuit("a"), other])
    rig.s2.size += 100
    rig.controller.apply([rig.circuit("a"), other])
    assert rig.controller.installed() == ["a", "b"]


def test_a_silent_switch_is_reported_and_brought_up_to_date_when_it_answers(rig: FakeRig) -> None:
    rig.controller.apply(
        [here := Circuit("here", ("mu", "s1", "local"), MBPS, MBPS, rig.now() + 600)]
    )
    rig.s2.silent = True
    question = rig.openflow._switches._submit(2, [], wire.groups_request())
    change = rig.openflow._switches._submit(2, [(wire.delete_by_cookie(0x77, 2**64 - 1), "")])

    def is_silent() -> bool:
        rig.openflow._switches._channels[2].silent_s = 30.0  # as if it had been for so long
        return rig.openflow.switches()[1].problem == "does not answer"

    rig.wait_for("the news", is_silent)
    rig.wait_for("the end of the question", question.is_done)
    assert not change.is_done()
    assert not rig.openflow.switches()[1].connected and rig.openflow.switches()[0].connected
    with pytest.raises(ControllerError, match=r"switch s2 \(dpid 0x2\) is not connected"):
        rig.controller.apply([here, rig.circuit("over")])
    rig.s2.lose(quietly=True)
    rig.s2.silent = False
    rig.wait_for("the rules", lambda: rig.owners(rig.s2) == [ROUTE_OWNER] * 4)
    rig.controller.apply([here, rig.circuit("over")])
    assert rig.s2.connections == 1 == len(rig.openflow._monitor._switches[2].came_at)


def test_a_circuit_does_not_need_the_answer_of_a_switch_that_is_not_on_its_path(
    rig: FakeRig, short_handshakes: None
) -> None:
    before = rig.circuit("a")
    rig.controller.apply([before])
    rig.s2.silent = True
    rig.wait_at_most(0.1)
    here = Circuit("here", ("mu", "s1", "local"), MBPS, MBPS, rig.now() + 600)
    rig.controller.apply([before, here])
    assert rig.openflow._reconciler.circuits == (before, here)
    rig.wait_at_most(30.0)
    rig.s2.silent = False
    rig.wait_for("return of s2", lambda: rig.controller.installed() == ["a", "here"])


def test_a_switch_that_answers_nothing_but_echoes_is_left_alone_until_it_does(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.s2.mangle = lambda answer: answer if answer[1:2] == bytes([ECHO_REPLY]) else b""
    rig.wait_at_most(0.1)
    with pytest.raises(ControllerError, match=r"s2 .*no answer within 0.1 s"):
        rig.controller.apply([rig.circuit("a"), rig.circuit("b")])
    rig.wait_for("its return", lambda: 2 in rig.openflow._switches._channels)
    status = rig.openflow.switches()[1]
    assert (status.connected, status.problem) == (False, "does not answer")
    connections = rig.s2.connections
    with pytest.raises(ControllerError, match=r"s2 .*is not connected"):
        rig.controller.apply([rig.circuit("a"), rig.circuit("b")])
    rig.s2.mangle = lambda answer: answer
    rig.wait_for("an answer", lambda: rig.openflow.switches()[1].connected)
    rig.wait_at_most(30.0)
    rig.controller.apply([rig.circuit("a"), rig.circuit("b")])
    assert rig.s2.connections == connections


def test_queues_that_a_switch_has_lost_are_laid_anew_whatever_its_database_says(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {"s1-a": (1, 10), "s1-b": (1, 11), "s2-a": (2, 10), "s2-b": (2, 11)}
    lost: set[tuple[int, int]] = set()

    def queues(dpid: int) -> set[tuple[int, int]]:
        laid = [(ends[device], c.mark) for device, s in rig.shaper.laid.items() for c in s.classes]
        laid += [(end, 0) for end in ends.values()]
        return {(end[1], mark) for end, mark in laid if end[0] == dpid and end not in lost}

    monkeypatch.setattr(rig.openflow._switches, "queues", queues)
    rig.openflow._reconciler.keep_by("queue")
    rig.controller.apply([rig.circuit("a")])
    rig.check_often()
    rig.wait_for("a look", lambda: rig.openflow._reconciler._queued == ends.keys())
    lost.add((1, 10))
    # Once or, on a busy machine, again and again before anybody looks.
    rig.wait_for(
        "a repair", lambda: rig.openflow.switches()[0].repairs.keys() == {"devices' classes"}
    )
    lost.clear()


def test_nothing_is_counted_between_sites_without_addresses_of_one_family(rig: FakeRig) -> None:
    (local,) = (node for node in rig.topology.nodes.values() if node.name == "local")
    object.__setattr__(local, "address", "fd00::9")
    rig.controller.apply([circuit := Circuit("a", ("mu", "s1", "local"), MBPS, MBPS, 2e9)])
    assert rig.controller.circuit_bytes(circuit.id) == 0


def test_a_lease_that_ends_is_no_repair(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a", lease_s=20), rig.circuit("b")])
    both = rig.shaper.laid["s1-a"]
    rig.check_often()
    rig.wait_for("the end of a", lambda: rig.openflow._reconciler.plan().carrier("a") is None)
    for name in ("compared", "compared again"):
        rig.openflow._reconciler._fingerprints.clear()
        rig.wait_for(name, lambda: rig.openflow._reconciler._fingerprints.keys() == {1, 2})
    assert rig.shaper.laid["s1-a"] != both
    assert [switch.repairs for switch in rig.openflow.switches()] == [{}, {}]


def test_what_is_released_is_no_loss(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    rig.controller.apply([])
    rig.wait_for("the end of each deletion", lambda: not rig.openflow._switches._deleting)
    rig.s1.lose(cookies=lambda cookie: cookie >> OWNER_SHIFT == ROUTE_OWNER)
    rig.wait_for("a repair", lambda: rig.openflow.switches()[0].repairs == {"rules": 6})
    assert rig.openflow.switches()[1].repairs == {}


def test_who_deletes_them_again_and_again_is_reported_until_it_ends(rig: FakeRig) -> None:
    rig.controller.apply([])
    rig.openflow._switches.check_s = 0.01

    def lost_again() -> bool:
        rig.s1.lose()
        return "again and again: 5 repairs within 60 s" in rig.openflow.switches()[0].problem

    rig.wait_for("what is said of s1", lost_again)
    assert rig.openflow.switches()[1].problem == ""
    rig.wait_for("its rules", lambda: rig.owners(rig.s1) == [ROUTE_OWNER] * 6)
    rig.wait_for("the end of it", lambda: rig.openflow.switches()[0].problem == "")


def test_switches_are_taken_again_after_too_many_open_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = [OSError(24, "Too many open files")]

    class Listener(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if full:
                raise full.pop()
            return super().accept()

    monkeypatch.setattr(socket, "create_server", lambda address, **_: listener)
    with Listener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with Scan("127.0.0.1:0") as scan, socket.create_connection(listener.getsockname()) as peer:
            peer.settimeout(60.0)
            assert peer.recv(1)  # its hello
            assert not full and scan.port


def test_a_switch_that_never_came_is_named_at_once() -> None:
    controller = OpenFlowController(two_switches(), "127.0.0.1:0")
    assert [s.problem for s in controller.switches()] == ["is not connected"] * 2


def test_who_came_instead_of_a_switch_that_never_came_is_named(rig: FakeRig) -> None:
    topology = Topology(
        [replace(n, dpid=n.dpid and n.dpid + 1) for n in rig.topology.nodes.values()],
        rig.topology.whole_links,
    )
    rig.controller.stop()
    controller = OpenFlowController(topology, f"127.0.0.1:{rig.port}", RecordingShaper())
    try:
        controller.start(0.0)  # s1 has s2's dpid now, and the topology's s2 is not there
        said = "is not connected; 127.0.0.2 has dpid 0x1, which is none of the topology's"
        rig.wait_for("its name", lambda: controller.switches()[1].problem == said)
    finally:
        controller.stop()


def test_a_switch_that_connects_again_and_again_is_named(rig: FakeRig) -> None:
    def again() -> bool:
        if 1 in rig.openflow._switches.connected():
            rig.s1.hang_up()
        return rig.openflow.switches()[0].problem.startswith("connects again and again: 5 times")

    rig.wait_for("what is said of s1", again)
    assert rig.openflow.switches()[1].problem == ""


def test_who_stands_by_changes_nothing_and_then_leads(rig: FakeRig) -> None:
    rig.controller.stop()
    before, following = rig.s1.mods, rig.new_controller()
    try:
        following.stand_by()
        rig.wait_for("the switches", lambda: all(s.connected for s in following.switches()))
        rig.s1.set_port(10, up=False)
        rig.s1.lose()  # it is for the leader to mend that
        rig.s1.set_port(10, up=True)
        following.lead(5, lambda: True)
        assert rig.s1.mods == before and rig.s1.term == 0
        assert following._switches.events.empty()
        following.start(60.0)
        following.apply([rig.circuit("a")])
        assert following.installed() == ["a"] and rig.s1.term == rig.s2.term == 5
        rig.s1.restart()
        rig.wait_for("the rules", lambda: following.installed() == ["a"])
    finally:
        following.stop()


def test_who_stood_by_in_vain_can_start_by_itself(rig: FakeRig) -> None:
    rig.controller.stop()
    other = rig.new_controller()
    try:
        other.stand_by()
        other.stop()
        rig.s1.lose(quietly=True)
        other.start(60.0)
        assert rig.owners(rig.s1) == [ROUTE_OWNER] * 6
    finally:
        other.stop()


def test_a_switch_that_a_later_leader_has_is_not_there_for_one_before(rig: FakeRig) -> None:
    rig.controller.stop()
    rig.s2.term = 7
    before, old = rig.s2.mods, rig.new_controller()
    try:
        old.lead(6, lambda: True)
        old.start(0.2)
        rig.wait_for("the other", lambda: old.switches()[0].connected)
        assert not old.switches()[1].connected and rig.s2.mods == before
    finally:
        old.stop()


def test_an_auxiliary_connection_leaves_the_switch_as_it_is(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("a")])
    auxiliary = FakeSwitch(rig.port, 1, [1], rig.now, auxiliary_id=1)
    rig.wait_for("a second try of it", lambda: auxiliary.connections > 1)
    auxiliary.close()
    assert rig.s1.connections == 1 and rig.controller.installed() == ["a"]


def test_of_two_switches_with_one_id_the_first_is_kept(
    rig: FakeRig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_RIVAL_S", 3600.0)
    monkeypatch.setattr(connections, "_ALIVE_S", 240.0)
    rig.controller.apply([rig.circuit("a")])
    twin = FakeSwitch(rig.port, 1, [1], rig.now)
    named = "has the datapath id of another switch, at 127.0.0.2, which is not used"
    rig.wait_for("the news", lambda: rig.openflow.switches()[0].problem == named)
    other = FakeSwitch(rig.port, 1, [1], rig.now)
    rig.wait_for("a second try of a third one", lambda: other.connections > 1)
    other.close()
    assert rig.openflow.switches()[0].problem == named and rig.openflow.switches()[0].connected
    assert rig.s1.connections == 1 == twin.connections  # it stays, so that its end is seen
    assert caplog.text.count("two switches have the same datapath id") == 1
    twin.close()
    monkeypatch.setattr(connections, "_RIVAL_S", 0.0)
    rig.wait_for("its end", lambda: rig.openflow.switches()[0].problem == "")
    assert twin.table == {} == other.table and rig.controller.installed() == ["a"]


def test_a_switch_has_not_gone_because_we_were_stopped_while_it_answered(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, stopped = connections.Ticket.wait, iter([True])

    def overslept(self: connections.Ticket, timeout_s: float) -> None:
        if next(stopped, False):
            raise connections.ChannelLostError("no answer: nobody ran who could read it")
        wait(self, timeout_s)

    channel = rig.openflow._switches._channels[1]
    monkeypatch.setattr(connections.Ticket, "wait", overslept)
    assert channel.answers(60.0)
    rig.s1.close()
    assert not channel.answers(60.0)


def test_where_the_first_of_two_switches_with_one_id_goes_the_other_takes_its_place(
    rig: FakeRig,
) -> None:
    rig.controller.apply([rig.circuit("a")])
    twin = FakeSwitch(rig.port, 1, [1], rig.now)
    rig.wait_for("the other", lambda: 1 in rig.openflow._switches._rivals)
    rig.s1.close()
    rig.wait_for("its rules", lambda: rig.owners(twin) == rig.owners(rig.s1))
    twin.close()


@pytest.mark.parametrize("has_meters", [True, False])
def test_rates_are_kept_by_meters_where_no_device_is_named_and_switches_have_them(
    has_meters: bool,
) -> None:
    whole, port = two_switches(), free_port()
    links = [replace(link, devices=None) for link in whole.links]
    topology = Topology(whole.nodes.values(), links)
    controller = OpenFlowController(
        topology, f"127.0.0.1:{port}", RecordingShaper(), reply_timeout_s=30.0, silent_after_s=30.0
    )
    switches = [FakeSwitch(port, dpid, [1, 2], has_meters=has_meters) for dpid in (1, 2)]
    try:
        controller.start(60.0)
        assert controller.capabilities().bandwidth == ("meter" if has_meters else "none")
        controller.apply([Circuit("a", PATH, MBPS, MBPS, time.time() + 600)])
        assert controller.installed() == ["a"] and bool(switches[0].meters) == has_meters
        controller.apply([])
        assert not switches[0].meters
    finally:
        controller.stop()
        for switch in switches:
            switch.close()


def test_a_meter_that_the_switch_rounds_is_the_one_that_was_sent(rig: FakeRig) -> None:
    switches, sent = rig.openflow._switches, Meter(1, TRANSIT_OWNER << 16 | 1, 20_000, 2_000)
    rig.s1.has_meters = rig.s1.rounds = True
    switches._meters.clear()
    switches.send({1: Changes(add_entries=(sent,))}, rig.now())
    assert switches.read_entries({1}) == {1: [sent]}
    rig.s1.meters[sent.number] = rig.s1.meters[sent.number][:12] + struct.pack("!II4x", 64, 64)
    assert switches.read_entries({1}) == {1: [replace(sent, rate_kbps=64, burst_kbit=64)]}


def test_a_rule_with_our_cookie_that_we_would_not_make_is_removed_and_ours_stay(
    rig: FakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.controller.apply([rig.circuit("a")])
    there = rig.cookies(rig.s1)
    ours = next(e for e in rig.s1.table.values() if e.cookie >> OWNER_SHIFT == TRANSIT_OWNER)
    # An OFPMatch of the Ethernet type alone: no addresses.
    match = struct.pack("!HHIH", 1, 10, 0x80000A02, 0x0800)
    odd = replace(ours, priority=3, match=match, rest=match.ljust(16, b"\0"))
    rig.s1.put(odd)
    rig.check_often()
    rig.wait_for("repair", lambda: rig.cookies(rig.s1) == there)
    assert "not up to date" not in caplog.text
    assert caplog.text.count(f"removed: {ours.cookie:#x}") == 1


IP = 0x80000A02, 0x0800  # OXM header and value of eth_type=ip


@pytest.mark.parametrize(
    ("priority", "fields", "is_in_front"),
    [
        (65535, [], True),
        (65535, [IP], True),
        (11, [IP], True),
        (10, [IP], True),  # which of the two is taken, OpenFlow leaves open
        (9, [IP], False),
        (65535, [(0x80000A02, 0x0806)], False),
        (65535, [(0x80000604, 0x12345678)], False),  # of a MAC address, cut short
        (65535, [(0x80000004, 77)], True),  # any port may be best effort's
        (65535, [IP, (0x80001708, 0x0A0A0000_FFFFFF00)], True),
        (65535, [IP, (0x80001708, 0x0A0B0000_FFFFFF00)], False),
        (65535, [IP, (0x80001708, 0x0A0A0000_FFFF00FF)], False),  # a mask with holes
    ],
)
def test_rules_of_others_before_ours_are_reported_and_left_alone(
    rig: FakeRig, priority: int, fields: list[tuple[int, int]], is_in_front: bool
) -> None:
    oxm = b"".join(
        struct.pack("!I", head) + value.to_bytes(head & 0xFF, "big") for head, value in fields
    )
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    ours = next(iter(rig.s1.table.values()))
    rest = match.ljust(-(-len(match) // 8) * 8, b"\0")
    rig.s1.put(replace(ours, priority=priority, cookie=0x77, match=match, rest=rest))
    for mac in range(2 * MOST):  # rules for other packets hide none
        by_mac = struct.pack("!HHIHI", 1, 14, 0x80000606, 0x0200, mac)
        rest = by_mac.ljust(16, b"\0")
        rig.s1.put(replace(ours, priority=0xFFFF, cookie=0x77, match=by_mac, rest=rest))
    assert rig.openflow._bring_up_to_date(1, set()) is False
    problem = rig.openflow.switches()[0].problem
    assert ("cookie 0x77, priority" in problem) is is_in_front
    assert 0x77 in rig.cookies(rig.s1).values()
    rig.s1.lose(quietly=True, cookies=lambda cookie: cookie == 0x77)
    rig.openflow._bring_up_to_date(1, set())
    assert rig.openflow.switches()[0].problem == ""


def test_names_of_ports_are_printable(rig: FakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.search_at_once(monkeypatch)
    rig.s1.names = {1: "a\x1b[2J\n"}
    names = {port.name for port in rig.openflow.discover().ports[1].values()}
    assert names == {"eth", r"a\x1b[2J\n"}


def test_links_whose_first_frames_are_lost(rig: FakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.search_at_once(monkeypatch)
    rig.s1.wires[10], rig.s2.wires[10] = (rig.s2, 10), (rig.s1, 10)
    rig.s1.lost_frames, rig.s2.lost_frames = 4, 3  # one at each port
    assert rig.openflow.discover().links == {((1, 10), (2, 10))}


def test_a_switch_of_somebody_else_is_named_once(
    rig: FakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = FakeSwitch(rig.port, 0xAA10, [1])
    try:
        rig.wait_for("another attempt", lambda: stranger.connections > 2)
    finally:
        stranger.close()
    lines = [line for line in caplog.messages if "0xaa10" in line]
    assert len(lines) == 1 and lines[0].endswith("expected one of 0x1, 0x2")


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (struct.pack("!BBHI", 1, 0, 8, 1), "OpenFlow 1.0, expected 1.3 "),
        (struct.pack("!BBHIHHI", 6, 0, 16, 1, 1, 8, 0b1100000), "OpenFlow 1.4, 1.5, expected 1.3 "),
        (bytes.fromhex("16030100ab010000a7"), "TLS, expected tcp"),
    ],
)
def test_a_switch_that_speaks_another_openflow_is_named_once(
    rig: FakeRig, caplog: pytest.LogCaptureFixture, hello: bytes, said: str
) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", rig.port)) as other:
            other.sendall(hello)
            with suppress(ConnectionResetError):
                while other.recv(100):
                    pass
    lines = [line for line in caplog.messages if "dropped" in line]
    assert len(lines) == 1 and f"it speaks {said}" in lines[0]


@pytest.mark.parametrize("listen", ["", "6653", "host:", "host:http", "host:70000"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(InputError, match="expected HOST:PORT"):
        parse_listen(listen)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 on this machine")
def test_all_addresses_are_those_of_ipv4_too() -> None:
    with Scan("[::]:0") as listening:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listening.port)).close()


def test_switches_need_datapath_ids() -> None:
    whole = two_switches()
    nodes = [replace(n, dpid=0) if n.kind == "switch" else n for n in whole.nodes.values()]
    with pytest.raises(InputError, match="dpid above 0 of its own"):
        OpenFlowController(Topology(nodes, whole.links), "127.0.0.1:0")
