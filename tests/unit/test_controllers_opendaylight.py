from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_opendaylight
import pytest
from authority import Authority
from controller_worlds import MBPS, HastyClock, two_switches
from fake_opendaylight import Entry, FakeOpenDaylight
from urllib3.exceptions import ReadTimeoutError

from examples.testbed.ports import free_port
from network_provisioner.base.controller import Circuit, Controller, ControllerError, Part
from network_provisioner.base.errors import InputError
from network_provisioner.controllers.backend import SwitchChange, SwitchEvent
from network_provisioner.controllers.conformance import ControllerConformance
from network_provisioner.controllers.opendaylight.driver import (
    OpenDaylightController,
    OpenDaylightSwitches,
)
from network_provisioner.controllers.restconf import Access, Restconf
from network_provisioner.controllers.rules import ROUTE_OWNER, TRANSIT_OWNER, Changes, FlowRule
from network_provisioner.topology.discovery import Discovers, Port
from network_provisioner.topology.graph import Topology

PATH = ("mu", "s1", "s2", "tacc")
REFUSAL = "Device reported error type FLOWMODFAILED code TABLEFULL"
HTML = b"<html><body><h1>Bad\n Gateway</h1></body></html>"
# What a controller may answer instead: status, content type, body, and what is said of it.
ANSWERS = {
    "an error page": (502, "text/html", HTML, "status 502: <html><body><h1>Bad Gateway</h1>"),
    "an error": (500, "application/json", b'{"errors":{"error":[{"error-message":"oh"}]}}', "oh"),
    "a page": (200, "text/html", HTML, "no JSON: <html>"),
    "half an answer": (200, "application/json", b'{"opendaylight-inv', "no JSON"),
    "bytes": (200, "application/json", b"\xff\xfe\x00", "no JSON"),
    "a list": (200, "application/json", b"[1, 2]", "no "),
    "a number": (200, "application/json", b"7", "no "),
    "deep nesting": (200, "application/json", b"[" * 100_000, "no JSON"),
    "a redirection": (302, "text/plain", b"", "status 302"),
    "a missing page": (404, "text/html", HTML, "status 404"),
    "nothing, missing": (404, "text/html", b"", "status 404"),
}


def instead(where: str, body: object) -> Callable[[str, str], tuple[int, str, bytes] | None]:
    """This answer wherever the path matches."""
    answer = (200, "application/json", json.dumps(body).encode())
    return lambda verb, path: answer if re.search(where, path) else None


class FakeRig(HastyClock):
    """A fake OpenDaylight with two switches and the real driver."""

    def __init__(self, timeout_s: float = 30.0) -> None:
        super().__init__()
        self.topology: Topology = two_switches()
        self.odl = FakeOpenDaylight({1: [1, 4, 10, 11], 2: [2, 10, 11]}, clock=self.now)
        self.controller: Controller = self.new_controller(timeout_s)

    def new_controller(
        self, timeout_s: float = 30.0, password: str = "admin", settle_s: float = 30.0
    ) -> OpenDaylightController:
        access = Access(self.odl.url, "admin", password, timeout_s)
        made = OpenDaylightController(
            self.topology,
            access,
            clock=self.now,
            poll_s=0.05,
            settle_s=settle_s,
            discover_s=0.5,
        )
        made._switches.check_s = 3600.0  # a test looks when it wants to
        return made

    def circuit(self, name: str = "a", rate: float = 50.0, lease_s: float = 600.0) -> Circuit:
        return Circuit(name, PATH, rate * MBPS, 2 * rate * MBPS, self.now() + lease_s)

    def restart_switches(self) -> None:
        for dpid in self.odl.nodes:
            self.odl.restart(dpid)

    def close(self) -> None:
        self.odl.silent.clear()
        self.odl.wrong = None
        self.controller.stop()
        self.odl.down()


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    with closing(FakeRig()) as made:
        made.controller.start(60.0)
        yield made


class TestOpenDaylight(ControllerConformance):
    """Everything that every driver has to do."""


def test_routes_are_configured_and_circuits_are_not(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit()])
    for dpid, node in rig.odl.nodes.items():
        owners = {int(flow["cookie"]) >> 48 for flow in node.config.values()}
        assert owners == {ROUTE_OWNER}
        assert set(rig.odl.owners(dpid)) == {ROUTE_OWNER, TRANSIT_OWNER}


def test_the_end_of_every_lease_is_noticed() -> None:
    """Nobody tells, so it is known from what was sent, or read after the end before."""
    clock = HastyClock()
    odl = FakeOpenDaylight({1: [1]}, clock=clock.now)
    rest = Restconf("OpenDaylight", Access(odl.url, "admin", "admin"))
    backend = OpenDaylightSwitches(rest, {1: "s1"}, clock.now, poll_s=0.02)
    backend.open()
    assert backend.events.get() == SwitchEvent(1, SwitchChange.CONNECTED)
    try:
        now = clock.now()
        for lease_s in (3, 1, 2):
            rule = FlowRule(1, 200, f"10.0.0.{lease_s}", "10.0.1.1", 1, TRANSIT_OWNER << 48)
            backend.send({1: Changes(add=(replace(rule, expires_at=now + lease_s),))}, now)
        while clock.now() < now + 3:
            clock.wait_for("the end of a lease", lambda: not backend.events.empty())
            assert backend.events.get() == SwitchEvent(1, SwitchChange.LEASE_ENDED)
            backend.read_rules({1}, 0, 0, clock.now())
    finally:
        backend.close()
        odl.down()


def test_a_refusal_names_switch_and_reason_and_changes_nothing(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("before")])
    tables = {dpid: rig.odl.owners(dpid) for dpid in rig.odl.nodes}
    rig.odl.nodes[2].refusal = REFUSAL
    other = Circuit("more", ("local", *PATH[1:]), MBPS, MBPS, rig.now() + 60)
    with pytest.raises(
        ControllerError, match=r"^switch s2 \(dpid 0x2\) refused the rule"
    ) as caught:
        rig.controller.apply([rig.circuit("before"), other])
    assert str(caught.value).count(REFUSAL) >= 1 and "\n" not in str(caught.value)
    assert rig.controller.installed() == ["before"]
    assert {dpid: rig.odl.owners(dpid) for dpid in rig.odl.nodes} == tables
    rig.odl.nodes[2].refusal = ""
    rig.controller.apply([rig.circuit("before"), other])
    assert rig.controller.installed() == ["before", "more"]


def test_a_refused_route_is_not_left_configured() -> None:
    rig = FakeRig()
    rig.odl.nodes[2].deaf = True
    impatient = rig.new_controller(settle_s=0.3)
    try:
        impatient.start(30.0)
        assert "switch s2 (dpid 0x2) did not do what" in impatient.switches()[1].problem
        assert impatient.switches()[0].problem == ""
        rig.wait_for("the end of each try", lambda: rig.odl.nodes[2].config == {})
    finally:
        impatient.stop()
        rig.close()


def test_what_was_accepted_but_not_done_is_no_success() -> None:
    rig = FakeRig()
    impatient = rig.new_controller(settle_s=0.3)
    impatient.start(30.0)
    try:
        rig.odl.nodes[1].lazy = True
        with pytest.raises(ControllerError, match=r"s1 \(dpid 0x1\) did not do .* for .*0.3 s$"):
            impatient.apply([rig.circuit()])
        assert impatient.installed() == []
        rig.odl.nodes[1].lazy = False
        impatient.apply([rig.circuit()])
        assert impatient.installed() == ["a"]
    finally:
        impatient.stop()
        rig.close()


def test_a_wrong_answer_is_one_line() -> None:
    odl = FakeOpenDaylight({1: [1]})
    rest = Restconf("OpenDaylight", Access(odl.url, "admin", "admin"))
    try:
        for *answer, said in ANSWERS.values():
            odl.wrong = lambda verb, path, answer=answer: tuple(answer)  # type: ignore[misc]
            for ask in (lambda: rest.get("nodes"), lambda: rest.call("sal-flow:add-flow", {})):
                with pytest.raises(ControllerError) as caught:
                    ask()
                assert said in str(caught.value) and str(caught.value).isprintable()
                assert odl.url in str(caught.value)
    finally:
        odl.down()


@pytest.mark.parametrize("step", ["add-flow", "remove-flow", "get-flow-statistics"])
def test_a_wrong_answer_on_the_way_is_put_back(rig: FakeRig, step: str) -> None:
    """Any one step goes wrong once, anywhere; what was there is there again."""
    rig.controller.apply([rig.circuit("before")])
    moved = replace(rig.circuit("before"), path=("mu", "s1", "r1", "s2", "tacc"), min_bps=MBPS)
    for name in ("an error", "half an answer", "a missing page"):
        *answer, _ = ANSWERS[name]
        once = threading.Semaphore(1)
        rig.odl.wrong = lambda verb, path, answer=answer, once=once: (  # type: ignore[misc]
            tuple(answer) if path.endswith(step) and once.acquire(blocking=False) else None
        )
        try:
            rig.controller.apply([moved, Circuit("b", PATH[::-1], 0, MBPS, rig.now() + 60)])
        except ControllerError as error:
            assert "\n" not in str(error)
            assert rig.controller.installed() == ["before"]
        else:
            # That step was not needed, or a look at the switch was simply taken again.
            assert rig.controller.installed() == ["b", "before"]
        rig.odl.wrong = None
        rig.controller.apply([rig.circuit("before")])
        assert rig.controller.installed() == ["before"]


_OUTPUT = "opendaylight-direct-statistics:output"
_UNREAD_FLOW = {
    "table_id": 0, "priority": "much", "cookie": TRANSIT_OWNER << 48, "byte-count": 0,
    "match": {"ethernet-match": {"ethernet-type": {"type": 34998}}},
    "duration": {"second": 1, "nanosecond": 0},
}  # fmt: skip


def test_flows_that_are_none_are_an_error(rig: FakeRig) -> None:
    before, more = rig.circuit("before"), rig.circuit("more")
    rig.controller.apply([before])
    lists = (7, [[]], [{}], [_UNREAD_FLOW])
    outputs = [{_OUTPUT: {"flow-and-statistics-map-list": listed}} for listed in lists]
    for body in (*outputs, {_OUTPUT: []}, {}):
        rig.odl.wrong = instead("get-flow-statistics$", body)
        with pytest.raises(ControllerError) as caught:
            rig.controller.apply([before, more])
        assert str(caught.value).isprintable()
        assert rig.controller.installed() == []  # not known, so not said
    rig.odl.wrong = None
    rig.wait_for("what was there", lambda: rig.controller.installed() == ["before"])


@pytest.mark.parametrize("how", ["silent", "dripping"])
def test_no_answer_is_an_error_in_time(how: str) -> None:
    odl = FakeOpenDaylight({1: [1]})
    getattr(odl, how).set()
    try:
        rest = Restconf("OpenDaylight", Access(odl.url, "admin", "admin", timeout_s=0.5))
        with pytest.raises(ControllerError, match=r"did not answer within 0.5 s$"):
            rest.get("opendaylight-inventory:nodes")
    finally:
        getattr(odl, how).clear()
        odl.down()


def test_an_answer_that_stops_in_the_middle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    odl = FakeOpenDaylight({1: [1]})

    def stops(*_: object) -> bytes:
        raise ReadTimeoutError(None, "/", "Read timed out.")  # type: ignore[arg-type]

    monkeypatch.setattr(Restconf, "_read", stops)
    try:
        rest = Restconf("OpenDaylight", Access(odl.url, "admin", "admin", timeout_s=30.0))
        with pytest.raises(ControllerError, match=r"did not answer within 30 s$"):
            rest.get("opendaylight-inventory:nodes")
    finally:
        odl.down()


def test_circuits_stay_while_opendaylight_is_away(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit("before")])
    rig.odl.down()
    with pytest.raises(
        ControllerError, match=rf"{rig.odl.url} cannot be asked: Connection refused"
    ):
        rig.controller.apply([])
    rig.odl.up()
    assert set(rig.odl.owners(1)) == {ROUTE_OWNER, TRANSIT_OWNER}
    rig.wait_for("sight", lambda: rig.controller.installed() == ["before"])


def test_a_proxy_that_answers_for_opendaylight_is_what_is_wrong_with_its_switches(
    rig: FakeRig,
) -> None:
    rig.odl.wrong = lambda verb, path: (502, "text/html", b"<h1>Bad Gateway</h1>")
    rig.wait_for("it", lambda: not any(s.connected for s in rig.controller.switches()))
    problem = rig.controller.switches()[0].problem
    assert problem.startswith("is out of sight: OpenDaylight at ") and "status 502" in problem
    rig.odl.wrong = None
    rig.wait_for("its end", lambda: {s.problem for s in rig.controller.switches()} == {""})


def test_whatever_goes_wrong_in_a_look_at_switches_there_is_another(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nonsense() -> None:
        raise ValueError("no number")

    assert isinstance(rig.controller, OpenDaylightController)
    monkeypatch.setattr(rig.controller._switches._ask, "switches", nonsense)
    rig.wait_for("it", lambda: "no number" in rig.controller.switches()[0].problem)
    monkeypatch.undo()
    rig.wait_for("its end", lambda: {s.problem for s in rig.controller.switches()} == {""})


def test_an_opendaylight_that_forgot_everything_is_told_again(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit()])
    rig.odl.down()
    for node in rig.odl.nodes.values():
        node.config.clear()
        node.table.clear()
        node.connection += 1
    rig.odl.up()
    rig.wait_for("circuit", lambda: rig.controller.installed() == ["a"])
    rig.wait_for("routes", lambda: all(node.config for node in rig.odl.nodes.values()))


def test_routes_that_only_the_switches_remember_are_configured_again(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit()])
    before = {dpid: dict(node.config) for dpid, node in rig.odl.nodes.items()}
    for node in rig.odl.nodes.values():
        node.config.clear()
        node.connection += 1
    rig.wait_for("routes", lambda: {d: n.config for d, n in rig.odl.nodes.items()} == before)


IP = {"ethernet-match": {"ethernet-type": {"type": 0x0800}}}


@pytest.mark.parametrize(
    ("priority", "match", "is_in_front"),
    [
        (65535, {}, True),
        (11, IP, True),
        (9, IP, False),
        (65535, {"ethernet-match": {"ethernet-type": {"type": 0x0806}}}, False),
        (65535, {"ethernet-match": {"ethernet-source": {"address": "02:00:00:00:00:09"}}}, False),
        (65535, {**IP, "ipv4-source": "10.10.0.0/24"}, True),
        (65535, {**IP, "ipv4-source": "10.11.0.0/24"}, False),
        (65535, {**IP, "ip-match": {"ip-protocol": 6}, "tcp-source-port": 5}, True),
        (65535, {**IP, "ip-match": {"ip-ecn": 1}}, False),
        (65535, {**IP, "in-port": "openflow:1:77"}, True),  # any port may be best effort's
    ],
)
def test_rules_of_others_before_ours_are_reported(
    rig: FakeRig, priority: int, match: dict[str, Any], is_in_front: bool
) -> None:
    assert isinstance(rig.controller, OpenDaylightController)
    flow = {"priority": priority, "cookie": 0x77, "table_id": 0, "match": match}
    rig.odl.nodes[1].table[priority, "theirs"] = Entry(flow, rig.now())
    rig.controller._bring_up_to_date(1, set())
    assert ("cookie 0x77" in rig.controller.switches()[0].problem) is is_in_front
    del rig.odl.nodes[1].table[priority, "theirs"]
    rig.controller._bring_up_to_date(1, set())
    assert rig.controller.switches()[0].problem == ""


def test_a_switch_that_is_away_keeps_circuits_from_being_added_only(rig: FakeRig) -> None:
    rig.controller.apply([rig.circuit()])
    rig.odl.nodes[2].connected = False

    def refused() -> bool:
        try:
            rig.controller.apply([rig.circuit(), rig.circuit("b")])
        except ControllerError as error:
            return str(error) == "switch s2 (dpid 0x2) is not connected"
        return False

    rig.wait_for("loss of s2", refused)
    rig.controller.apply([])
    rig.odl.nodes[2].connected = True
    rig.wait_for("s2", lambda: rig.odl.owners(2).count(TRANSIT_OWNER) == 0)


def test_a_switch_is_left_alone_until_it_can_be_asked() -> None:
    rig = FakeRig()
    rig.odl.nodes[1].ready = False
    waiting = threading.Thread(target=rig.controller.start, args=(60.0,))
    waiting.start()
    try:
        rig.wait_for("a try", lambda: len(rig.odl.asked) > 3)
        rig.odl.nodes[1].ready = True
        waiting.join(60)
        rig.controller.apply([rig.circuit()])
    finally:
        waiting.join(60)
        rig.close()


def test_a_switch_that_does_not_come_is_named(caplog: pytest.LogCaptureFixture) -> None:
    rig = FakeRig()
    rig.odl.nodes[2].connected = False
    try:
        controller = rig.new_controller()
        controller.start(0.5)
        controller.stop()
        # On a busy machine the other one has not answered in time either, and stands before it.
        assert "waits for switch s" in caplog.text
        assert (
            "switch s2 (dpid 0x2) to connect to OpenDaylight at "
            f"{rig.odl.url}, expected the switches' controller to be set to it"
        ) in caplog.text
    finally:
        rig.close()


def test_a_wrong_password_is_told_at_once() -> None:
    rig = FakeRig()
    try:
        with pytest.raises(ControllerError, match="does not let user 'admin' in"):
            rig.new_controller(password="guess").start(60.0)
    finally:
        rig.close()


def test_nobody_at_the_address_is_told_at_once() -> None:
    access = Access(f"http://127.0.0.1:{free_port()}", "admin", "admin")
    with pytest.raises(ControllerError, match="cannot be asked: Connection refused"):
        OpenDaylightController(two_switches(), access).start(60.0)


@pytest.mark.parametrize(
    "url", ["", "odl:8181", "ftp://odl", "127.0.0.1", "http://", "http:///x", "http://[::1:8181"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"controller\.url"):
        Access(url, "admin", "admin")


def test_who_asks_and_whom_to_trust_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"controller\.user"):
        Access("https://odl", "", "admin")
    with pytest.raises(InputError, match=r"controller\.ca"):
        Access("https://odl", "admin", "secret", ca_file=str(tmp_path / "none.pem"))
    assert "secret" not in repr(Access("https://odl", "admin", "secret"))


def test_it_looks_around_and_leaves_nothing(rig: FakeRig) -> None:
    rig.odl.links = [
        ("openflow:1:10", "openflow:2:10"),
        ("openflow:2:10", "openflow:1:10"),
        ("host:02:00:00:00:00:01", "openflow:1:1"),
        ("openflow:7:1", "openflow:1:4"),
    ]
    rules = rig.odl.owners(1)
    assert isinstance(rig.controller, Discovers)
    network = rig.controller.discover()
    assert network.links == {((1, 10), (2, 10))}
    assert network.ports.keys() == {1, 2}
    assert network.ports[1][10] == Port("s1-10", True, 10e9) and network.ports[1].keys() == {
        1,
        4,
        10,
        11,
    }
    assert rig.odl.owners(1) == rules
    rig.controller.stop()
    with pytest.raises(ControllerError, match="not started"):
        rig.controller.discover()


def test_ports_that_are_down_fail_their_links(rig: FakeRig) -> None:
    assert isinstance(rig.controller, OpenDaylightController)
    rig.odl.nodes[2].down.add(10)
    rig.controller._links.observe()
    failed = rig.controller.failed_links()
    assert failed == dict.fromkeys([("s1", "s2"), ("s2", "s1")], "port 10 of s2 is down")
    rig.odl.nodes[2].down.clear()
    rig.odl.nodes[2].closed.add(10)
    rig.controller._links.observe()
    failed = rig.controller.failed_links()
    assert set(failed.values()) == {"port 10 of s2 is set to drop packets"}
    rig.odl.nodes[2].closed.clear()
    rig.controller._links.observe()
    assert rig.controller.failed_links() == {}
    rig.odl.nodes[2].ports.remove(10)
    rig.controller._links.observe()
    assert set(rig.controller.failed_links().values()) == {"port 10 of s2 is not there"}


def test_links_whose_rules_for_probes_somebody_removed_are_unknown(rig: FakeRig) -> None:
    assert isinstance(rig.controller, OpenDaylightController)
    rig.odl.wires = {"openflow:1:10": "openflow:2:10"}
    links = rig.controller._links
    for _ in range(3):
        links.observe()
    assert ((1, 10), (2, 10)) in links.heard
    for _ in range(6):
        rig.controller._switches.unwatch()
        assert rig.controller._switches.heard() == set()
        links.observe()
        assert rig.controller.failed_links() == {}
    assert ((1, 10), (2, 10)) not in links.heard


def test_links_that_let_no_probes_through_fail(rig: FakeRig) -> None:
    assert isinstance(rig.controller, OpenDaylightController)
    rules = rig.odl.owners(1)
    rig.odl.wires = {"openflow:1:10": "openflow:2:10", "openflow:1:11": "openflow:2:11"}
    for _ in range(9):
        rig.controller._links.observe()
        assert rig.controller.failed_links() == {}
    del rig.odl.wires["openflow:1:11"]
    for _ in range(5):
        rig.controller._links.observe()
    routed = [("s1", "r1"), ("r1", "s1"), ("r1", "s2"), ("s2", "r1")]
    why = "nothing comes through from s1 to s2"
    assert rig.controller.failed_links() == dict.fromkeys(routed, why)
    rig.odl.wires["openflow:1:11"] = "openflow:2:11"
    for _ in range(2):
        rig.controller._links.observe()
    assert rig.controller.failed_links() == {}
    rig.controller._switches.unwatch()
    assert rig.odl.owners(1) == rules


def test_what_it_cannot_read_when_it_looks_around(rig: FakeRig) -> None:
    rules = rig.odl.owners(1)
    assert isinstance(rig.controller, Discovers)
    topology, nodes = "network-topology:topology", "opendaylight-inventory:nodes"
    port = {"id": "openflow:1:1", "flow-node-inventory:current-speed": "fast"}
    for where, body in (
        ("/data/network-topology", {topology: [{"link": [{}]}]}),
        ("/data/network-topology", {topology: 7}),
        # Not the look for switches that goes on all the time.
        ("/data/opendaylight-inventory:nodes.*node-connector", {nodes: {"node": [7]}}),
        (
            "/data/opendaylight-inventory:nodes.*node-connector",
            {nodes: {"node": [{"node-connector": [port]}]}},
        ),
    ):
        rig.odl.wrong = instead(where, body)
        with pytest.raises(ControllerError, match="cannot be read"):
            rig.controller.discover()
        assert rig.odl.owners(1) == rules


def split(rig: FakeRig, name: str = "split") -> Circuit:
    l3 = ("mu", "s1", "r1", "s2", "tacc")
    parts = (Part(PATH, 40 * MBPS, 60 * MBPS), Part(l3, 15 * MBPS, 20 * MBPS))
    whole = rig.circuit(name)
    return replace(whole, min_bps=55 * MBPS, max_bps=80 * MBPS, parts=parts)


def test_a_group_that_was_left_is_taken_over(rig: FakeRig) -> None:
    rig.controller.apply([split(rig)])
    node = rig.odl.nodes[1]
    before = {number: group["buckets"] for number, group in node.groups.items()}
    second = rig.new_controller()
    second.start(30.0)
    try:
        second.apply([split(rig)])
        assert second.installed() == ["split"]
        assert {number: group["buckets"] for number, group in node.groups.items()} == before
        second.apply([])
        assert node.groups == {}
    finally:
        second.stop()


def test_rates_by_meters_are_refused() -> None:
    access = Access("http://127.0.0.1:1", "admin", "admin")
    with pytest.raises(InputError, match="bandwidth is 'meter'"):
        OpenDaylightController(two_switches(), access, bandwidth="meter")


def test_https_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("odl", hosts=["127.0.0.1"]))
    odl = FakeOpenDaylight({1: [1], 2: [2]}, tls)
    try:
        known = Access(odl.url, "admin", "admin", ca_file=str(authority.file))
        controller = OpenDaylightController(two_switches(), known, poll_s=0.05)
        controller.start(60.0)
        controller.stop()
        with pytest.raises(ControllerError, match=r"cannot be asked: .*verify failed"):
            OpenDaylightController(
                two_switches(), Access(odl.url, "admin", "admin"), poll_s=0.05
            ).start(60.0)
    finally:
        odl.down()


def test_clear_removes_everything_of_ours_and_nothing_else(rig: FakeRig) -> None:
    foreign = {"priority": 7, "cookie": 7, "match": {}, "table_id": 0, "instructions": {}}
    node = rig.odl.nodes[1]
    node.config["theirs"] = {"id": "theirs", **foreign}
    rig.odl.restart(1)
    rig.controller.apply([rig.circuit()])
    rig.controller.clear()
    assert list(node.config) == ["theirs"]
    assert rig.odl.owners(1) == [0] and rig.odl.owners(2) == []


def test_flows_of_others_stay_where_the_filter_by_cookie_is_ignored(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_them(node: Any, given: dict[str, Any]) -> tuple[int, Any]:
        return flows(node, {k: v for k, v in given.items() if "cookie" not in k})

    flows = fake_opendaylight._OPERATIONS["get-flow-statistics"]
    operations = {**fake_opendaylight._OPERATIONS, "get-flow-statistics": all_of_them}
    monkeypatch.setattr(fake_opendaylight, "_OPERATIONS", operations)
    node = rig.odl.nodes[1]
    foreign = [
        {"id": f"theirs{n}", "priority": 7 + n, "cookie": 7, "table_id": 0, **more}
        for n, more in enumerate(
            [{"match": {}, "instructions": {}}, {"match": {"in-port": "openflow:1:1"}}]
        )
    ]
    for flow in foreign:
        node.config[flow["id"]] = flow
    rig.odl.restart(1)
    rig.controller.apply([rig.circuit()])
    rig.controller.apply([])
    rig.controller.clear()
    assert rig.odl.owners(1) == [0, 0]


def test_an_endless_answer_is_cut_off(rig: FakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.controller.apply([])
    monkeypatch.setattr("network_provisioner.controllers.restconf._MOST_BYTES", 1000)
    rig.odl.wrong = lambda verb, path: (200, "application/json", b" " * 2000)
    with pytest.raises(ControllerError, match="more than"):
        rig.controller.apply([rig.circuit()])
