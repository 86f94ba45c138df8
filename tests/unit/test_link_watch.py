"""How links that fail are seen: ports, frames that do not come through, and counters."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pytest
from controller_rig import PATH, FakeRig
from controller_worlds import MBPS, two_switches
from fake_switch import Entry

from network_provisioner.base.flows import Flow
from network_provisioner.controllers.base import Circuit, ControllerError, WatchesLinks
from network_provisioner.controllers.losses import Losses
from network_provisioner.controllers.openflow.silence import ROUNDS, Silence
from network_provisioner.controllers.routes import default_paths
from network_provisioner.controllers.rules import (
    ROUTE_OWNER,
    TRANSIT_OWNER,
    SeenRule,
    make_cookie,
)
from network_provisioner.topology.discovery import joined_ports

P = ("p", ())
S12, S23 = ("s1", "s2"), ("s2", "s3")
A, B = (1, 10), (2, 10)
L2 = {("s1", "s2"), ("s2", "s1")}


# -- pure ------------------------------------------------------------------------------------


def test_a_link_is_silent_when_frames_stop_to_come_through() -> None:
    silence = Silence()
    silence.sent([(A, B), (B, A)])
    assert silence.doubtful() == {}  # a provider may keep LLDP to itself
    silence.heard((A, B))
    for _ in range(ROUNDS):
        silence.sent([(A, B), (B, A)])
    assert silence.doubtful() == {(A, B): False}
    silence.sent([(A, B)])
    assert silence.doubtful() == {(A, B): True}
    silence.heard((A, B))
    assert silence.doubtful() == {}
    for _ in range(2 * ROUNDS):
        silence.sent([(A, B)])
    silence.forget(2)
    assert silence.doubtful() == {}


def test_packets_that_enter_and_never_leave() -> None:
    losses = Losses(patience_s=1.0)
    look = partial(losses.observe, P, [S12, S23])
    assert look([0, 0, 0], 0.0) is None
    assert look([500_000, 400_000, 400_000], 0.5) is None
    assert look([500_000, 500_000, 400_000], 1.0) is None and P in losses.doubtful
    lost = [500_000, 501_500, 400_000]
    assert look(lost, 1.9) is None
    assert look(lost, 2.0, delay_s=0.3) is None  # they may be on their way
    assert look(lost, 2.0) == S23


def test_packets_of_one_circuit_that_a_router_refuses_are_no_loss() -> None:
    losses = Losses(patience_s=1.5)
    refusing, through = ("refused", ()), ("taken", ())
    found = []
    for second in range(6):
        refused = losses.observe(refusing, [S12], [100 * second, 0], second)
        taken = losses.observe(through, [S12], [100 * second] * 2, second)
        found += [refused, taken]
    assert found == [None] * 12
    lost = [losses.observe(refusing, [S12], [100 * n, 0], n) for n in (6, 7)]
    assert lost == [None, S12]  # nothing comes through any more


def test_a_link_that_fails_with_many_circuits_is_found_though_others_always_lose() -> None:
    losses, ways = Losses(patience_s=1.0), {(f"c{n}", ("a", "b")): [S12] for n in range(100)}
    refused = {(f"r{n}", ("c", "b")): [S23] for n in range(30)}
    fine = ("fine", ("c", "b"))
    ways = {fine: [S23]} | ways | refused
    found = []
    for third in range(60):
        now, failed_at = third / 3, 30
        for way in losses.due(ways, 16):
            came = 0 if way in refused else third if way == fine else min(third, failed_at)
            if losses.observe(way, ways[way], [third, came], now):
                found.append((ways[way], third - failed_at))
    assert {tuple(segments) for segments, _ in found} == {(S12,)}
    assert 0 < found[0][1] <= 20


def test_what_was_lost_long_ago_was_lost_by_chance() -> None:
    losses = Losses(patience_s=1.0)
    look = partial(losses.observe, P, [S12])
    look([0, 0], 0.0)
    look([1500, 0], 0.3)
    assert P in losses.doubtful
    look([1500, 0], 10.0)
    assert P not in losses.doubtful
    look([3000, 0], 600.0)
    assert look([4500, 0], 1200.0) is None  # the next switch counts a little later
    assert look([6000, 0], 1202.0) is None  # as before
    assert look([6000, 0], 1202.3) == S12


@pytest.mark.parametrize(
    "readings",
    [
        [[0, 0], [1500, 0], [1500, 0]],  # may be lost by chance
        [[0, 0], [10**6, 0], [2 * 10**6, 1]],  # it came, late
        [[10**6, 10**6], [0, 0], [1500, 0]],  # counted anew: a switch has restarted
    ],
)
def test_what_says_nothing(readings: list[list[int]]) -> None:
    losses = Losses(patience_s=1.0)
    look = partial(losses.observe, P, [S12])
    assert [look(counts, 2.0 * n) for n, counts in enumerate(readings)] == [None] * len(readings)


def test_best_effort_goes_round_a_link_that_has_failed() -> None:
    topology = two_switches()
    ways = {p.nodes for p in default_paths(topology)}
    assert ("mu", "s1", "r1", "s2", "tacc") in ways
    failed = topology.link("s1", "r1").hops
    ways = {p.nodes for p in default_paths(topology, failed)}
    assert ("mu", "s1", "s2", "tacc") in ways
    everything = [hop for link in topology.links for hop in link.hops]
    assert len(default_paths(topology, everything)) == 6  # it may work again


# -- with switches ---------------------------------------------------------------------------


@pytest.fixture
def rig() -> Iterator[FakeRig]:
    made = FakeRig()
    made.s1.wires[10], made.s2.wires[10] = (made.s2, 10), (made.s1, 10)
    try:
        made.controller.start(60.0)
        made.openflow._switches.watch_s = 1e6  # no round is late
        yield made
    finally:
        made.close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock by which losses are judged, in seconds: it stands until a test sets it."""
    clock = [0.0]
    name = "network_provisioner.controllers.switched.time.monotonic"
    monkeypatch.setattr(name, lambda: clock[0])
    return clock


def look(rig: FakeRig, times: int = 1) -> set[tuple[str, str]]:
    """What has failed after so many rounds, as the thread makes them."""
    ends = [joined_ports(rig.topology, link) for link in rig.topology.links]
    for _ in range(times):
        rig.openflow._switches.watch([pair for pair in ends if pair])
    return set(rig.openflow.failed_links())


def heard(rig: FakeRig) -> bool:
    """Whether frames are heard both ways."""
    look(rig)
    return len(rig.openflow._switches._silence._missed) == 2


def test_a_port_that_goes_down_fails_its_link_and_one_that_was_down_before(rig: FakeRig) -> None:
    assert isinstance(rig.openflow, WatchesLinks)
    rig.s2.down.add(2)  # nobody was told
    rig.wait_for("look at ports", lambda: look(rig) == {("s2", "tacc"), ("tacc", "s2")})
    rig.s1.set_port(10, up=False)
    rig.wait_for("news", lambda: len(rig.openflow.failed_links()) == 4)
    assert rig.openflow.failed_links()["s1", "s2"] == "port 10 of s1 is down"
    rig.s1.set_port(10, up=True)
    rig.wait_for("its return", lambda: not L2 & look(rig))


def test_a_link_that_lets_no_frames_through_any_more(rig: FakeRig) -> None:
    rig.wait_for("frames both ways", lambda: heard(rig))
    rig.s1.wires.clear()
    rig.wait_for("silence", lambda: look(rig) == L2)
    assert rig.openflow.failed_links()["s2", "s1"] == ("no LLDP frame comes through from s1 to s2")
    rig.s1.wires[10] = (rig.s2, 10)
    rig.wait_for("its return", lambda: look(rig) == set())


def test_a_link_that_is_full_is_not_dead(rig: FakeRig) -> None:
    rig.wait_for("frames both ways", lambda: heard(rig))
    rig.s1.wires.clear()
    sent = 0

    def full() -> bool:
        nonlocal sent
        sent += 10**6
        rig.s1.carried[10], rig.s2.carried[10] = (0, sent), (sent, 0)
        return look(rig) == set() and rig.openflow._switches._silence.doubtful() == {(A, B): True}

    rig.wait_for("frames that find no room", full)
    rig.s2.carried[10] = (0, 0)
    rig.openflow._switches._carried.clear()

    def black() -> bool:
        nonlocal sent
        sent += 10**6
        rig.s1.carried[10] = (0, sent)
        return look(rig) == L2

    rig.wait_for("a hole", black)


def test_frames_of_hosts_do_not_reach_the_controller(rig: FakeRig) -> None:
    look(rig)
    laid = [e for e in rig.s1.table.values() if e.cookie == 0xAD1D << 48]
    assert [e.match[4:12] for e in laid] == [struct.pack("!HBBI", 0x8000, 0, 4, 10)]


def test_one_switch_without_a_port_does_not_end_the_watch(rig: FakeRig) -> None:
    rig.wait_for("frames both ways", lambda: heard(rig))
    rig.s1._ports.remove(10)
    rig.openflow._switches._unasked.add(1)
    rig.s2.down.add(2)  # nobody was told
    rig.openflow._switches._unasked.add(2)
    assert look(rig) == {*L2, ("s2", "tacc"), ("tacc", "s2")}
    assert rig.openflow.failed_links()["s1", "s2"] == "port 10 of s1 is not there"


def test_a_switch_that_refuses_does_not_end_the_watch_of_others(rig: FakeRig) -> None:
    rig.wait_for("frames both ways", lambda: heard(rig))
    rig.s1.refuse_adds = True
    rig.s2.down.add(2)  # nobody was told
    rig.openflow._switches._unasked |= {1, 2}
    with pytest.raises(ControllerError, match=r"s1 .*refused the rule to watch by"):
        look(rig)
    assert set(rig.openflow.failed_links()) == {("s2", "tacc"), ("tacc", "s2")}


def test_the_rule_to_watch_by_goes_with_the_controller(rig: FakeRig) -> None:
    look(rig)
    assert 0xAD1D << 48 in rig.cookies(rig.s1).values()
    rig.openflow._watch = True
    rig.controller.stop()
    assert rig.cookies(rig.s1) == {} == rig.cookies(rig.s2)


def entry(rig: FakeRig, switch: int, cookie: int) -> Entry:
    table = (rig.s1, rig.s2)[switch - 1].table
    return next(
        e for e in table.values() if e.cookie == cookie and b"\x0a\x0a\0\x01" in e.match[14:18]
    )


def test_counters_along_a_path_find_the_links_that_swallow_packets(
    rig: FakeRig, now: list[float]
) -> None:
    path = ("mu", "s1", "r1", "s2", "tacc")
    rig.controller.apply([Circuit("a", path, MBPS, MBPS, rig.now() + 600)])
    (group,) = [g for g in rig.openflow._reconciler.plan().groups if g.data]
    cookie = make_cookie(TRANSIT_OWNER, group.text)
    for second in range(5):
        now[0] = float(second)
        rig.openflow.look_for_losses()
        assert not rig.openflow.failed_links() or second >= 3
        entry(rig, 1, cookie).bytes += 10**5
        if second == 0:
            entry(rig, 2, cookie).bytes += 10**5
    failed = rig.openflow.failed_links()
    assert set(failed) == {("s1", "r1"), ("r1", "s1"), ("r1", "s2"), ("s2", "r1")}
    assert failed["s1", "r1"] == "what s1 forwards does not reach s2"

    # Best effort leaves it with the next change, and it is tried again after a while.
    assert rig.owners(rig.s1).count(ROUTE_OWNER) == 6
    rig.controller.apply([])
    routed = {p.nodes for p in rig.openflow._reconciler._planner._default_paths}
    assert PATH in routed
    now[0] += 61
    assert not rig.openflow.failed_links()


def test_many_circuits_that_lose_do_not_hide_those_that_come_through(
    rig: FakeRig, now: list[float]
) -> None:
    path = ("mu", "s1", "r1", "s2", "tacc")
    lease = rig.now() + 600
    flows = {n: Flow("udp", None, (5000 + n, 5000 + n)) for n in range(24)}
    circuits = [Circuit(f"c{n}", path, 1.0, MBPS, lease, (f,)) for n, f in flows.items()]
    rig.controller.apply(circuits)
    honest = next(g for g in rig.openflow._reconciler.plan().groups if g.data == ("c23",))
    cookie = make_cookie(TRANSIT_OWNER, honest.text)
    (through,) = [e for e in rig.s2.table.values() if e.cookie == cookie]
    for third in range(1, 60):
        now[0] = third / 3
        for e in rig.s1.table.values():  # of all the others no packet gets past the router
            e.bytes += 1000
        through.bytes += 1000
        rig.openflow.look_for_losses()
        assert rig.openflow.failed_links() == {}
    for third in range(60, 70):
        now[0] = third / 3
        for e in rig.s1.table.values():
            e.bytes += 1000
        rig.openflow.look_for_losses()
    assert ("s1", "r1") in rig.openflow.failed_links()


def test_packets_of_one_circuit_say_nothing_where_best_effort_comes_through(
    rig: FakeRig, now: list[float]
) -> None:
    path = ("mu", "s1", "r1", "s2", "tacc")
    rig.controller.apply([Circuit("a", path, MBPS, MBPS, rig.now() + 600)])
    near = Circuit("near", ("mu", "s1", "local"), MBPS, MBPS, rig.now() + 600)
    rig.controller.apply([*(rig.openflow._reconciler.circuits or ()), near])
    others = make_cookie(ROUTE_OWNER, "local>s1>r1>s2>tacc")
    for third in range(30):
        now[0] = third / 3
        rig.openflow.look_for_losses()
        assert not rig.openflow.failed_links() or third > 20
        for e in rig.s1.table.values():
            e.bytes += 1000
        for e in rig.s2.table.values():
            e.bytes += 1000 * (e.cookie == others and third < 20)
    assert ("s1", "r1") in rig.openflow.failed_links()


def test_what_comes_through_beside_a_router_says_nothing_of_the_way_through_it(
    rig: FakeRig, now: list[float]
) -> None:
    routed = ("mu", "s1", "r1", "s2", "tacc")
    lease, flow = rig.now() + 600, Flow("udp", None, (5000, 5000))
    rig.controller.apply(
        [Circuit("a", PATH, 1.0, MBPS, lease), Circuit("b", routed, 1.0, MBPS, lease, (flow,))]
    )
    groups = {g.data: g for g in rig.openflow._reconciler.plan().groups}
    straight = make_cookie(TRANSIT_OWNER, groups["a",].text)
    for third in range(9):
        now[0] = third / 3
        rig.openflow.look_for_losses()
        for e in rig.s1.table.values():
            e.bytes += 1000
        for e in rig.s2.table.values():
            e.bytes += 1000 * (e.cookie == straight)
    assert set(rig.openflow.failed_links()) == {
        ("s1", "r1"), ("r1", "s1"), ("r1", "s2"), ("s2", "r1"),
    }  # fmt: skip


def test_who_changes_something_does_not_wait_for_counters(
    rig: FakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.controller.apply([rig.circuit()])
    asked, answer = threading.Event(), threading.Event()
    read = rig.openflow._switches.read_bytes

    def slow(wanted: Mapping[int, Sequence[int]], now: float) -> list[SeenRule]:
        if threading.current_thread() is looking:
            asked.set()
            answer.wait(30)
        return read(wanted, now)

    monkeypatch.setattr(rig.openflow._switches, "read_bytes", slow)
    looking = threading.Thread(target=rig.openflow.look_for_losses)
    looking.start()
    changing = threading.Thread(target=rig.controller.apply, args=([],))
    try:
        assert asked.wait(30)
        changing.start()
        changing.join(10)
        assert not changing.is_alive()
    finally:
        answer.set()
        looking.join()
        changing.join()
