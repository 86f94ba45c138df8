"""The testbed: its layout, links, ports, switches and programs."""

from __future__ import annotations

import math
import os
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_world import LINE, RELAYED

from adon.machine import syscalls
from examples.soykb.scenario import LAYOUT
from examples.testbed import ports, procs
from examples.testbed.delaylink import DelayLink, frame_wire_bytes
from examples.testbed.layout import Layout
from examples.testbed.linkqueue import LinkQueue, wire_bytes
from examples.testbed.ports import LOOPBACK, free_ports
from examples.testbed.switches import _sockets, _widen
from network_provisioner.base.errors import AdonError, MissingError
from network_provisioner.topology.data import topology_from_dict

LAYOUTS = pytest.mark.parametrize(
    "layout", [LAYOUT, LINE, RELAYED], ids=["soykb", "line", "relayed"]
)


def test_both_paths_of_the_thesis_are_there():
    topology = topology_from_dict(LAYOUT.topology())
    assert topology.sites == ["mu", "tacc", "iplant", "local"]
    paths = {p.layer: p for p in topology.candidate_paths("iplant", "mu")}
    assert paths["l2"].nodes == ("iplant", "s2", "s1", "mu")
    assert paths["l3"].nodes == ("iplant", "s2", "r1", "s1", "mu")
    assert (paths["l2"].capacity_bps, paths["l3"].capacity_bps) == (200e6, 20e6)
    assert abs(paths["l2"].rtt_s - 0.053) < 1e-9
    assert abs(paths["l3"].rtt_s - 0.053) < 1e-9
    assert topology.candidate_paths("mu", "local")[0].nodes == ("mu", "s1", "local")


def test_a_larger_one_has_its_paths_too():
    topology = topology_from_dict(LINE.topology())
    paths = {path.nodes for path in topology.candidate_paths("near", "far")}
    assert {
        ("near", "s1", "s3", "far"),
        ("near", "s1", "r2", "s3", "far"),
        ("near", "s1", "r1", "s2", "s3", "far"),
    } <= paths
    assert topology.candidate_paths("they", "them")[0].capacity_bps == 1e8


def test_a_router_reaches_every_host_by_the_nearer_side():
    first, second = LINE.routers
    assert [LINE.side_of(first, host) for host in LINE.sites] == ["s1", "s1", "s2", "s2"]
    assert [LINE.side_of(second, host) for host in LINE.sites] == ["s1", "s1", "s3", "s3"]


def test_relays_are_at_their_switches_with_a_management_link():
    topology = topology_from_dict(RELAYED.topology())
    assert [node.name for node in topology.relays_at("s1")] == ["ra"]
    (relay,) = topology.relays_at("s2")
    assert (relay.address, relay.mac) == ("10.10.0.8", "02:00:00:00:00:08")
    assert topology.link("rb", "s2").ports == {"s2": 8}
    assert topology.sites == topology_from_dict(LAYOUT.topology()).sites
    assert RELAYED.managed()["adon-ra"] == 7
    assert "10.254.8.2 rb.adon.test" in RELAYED.hosts_lines()


@LAYOUTS
def test_no_port_device_or_address_is_used_twice(layout: Layout):
    links = layout.topology()["links"]
    ports = Counter((s, p) for link in links for s, p in link["ports"].items())
    devices = Counter(d for link in links for d in link.get("devices", {}).values())
    addresses = Counter(line.split()[0] for line in layout.hosts_lines())
    names = Counter(line.split()[1] for line in layout.hosts_lines())
    macs = Counter(mac for router in layout.routers for mac in router.macs.values())
    macs.update(host.mac for host in layout.hosts)
    for counted in (ports, devices, addresses, names, macs):
        assert max(counted.values()) == 1
    # IFNAMSIZ is 16 with its closing zero.
    assert all(len(device) < 16 for device in devices)
    for switch in layout.switches:
        assert set(layout.ports(switch)) == {port for name, port in ports if name == switch}


RATES = st.floats(1e3, 1e10)
DELAYS = st.floats(0, 1)
PACKETS = st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 70_000)), max_size=60)


def through(queue: LinkQueue, packets: list[tuple[float, int]]) -> list[tuple[float, float, int]]:
    """Offer packets given as (gap, bytes); (offered, out, bytes) of those that come out."""
    now, out = 0.0, []
    for gap, n_bytes in packets:
        now += gap
        left = queue.offer(now, n_bytes)
        if left is not None:
            out.append((now, left, n_bytes))
    return out


@given(RATES, DELAYS, st.floats(0, 1e6), PACKETS)
def test_no_packet_is_lost_early_too_fast_or_out_of_order(rate, delay, limit, packets):
    queue = LinkQueue(rate, delay, limit)
    out = through(queue, packets)
    assert queue.accepted == len(out)
    assert queue.accepted + queue.dropped == len(packets)
    assert queue.accepted_bytes == sum(n for _, _, n in out)
    assert all(a[1] <= b[1] for a, b in pairwise(out))
    assert all(left >= at + delay for at, left, _ in out)
    for i, (_, first, _) in enumerate(out):
        carried = 0
        for _, left, n_bytes in out[i + 1 :]:
            carried += n_bytes
            assert carried * 8 <= (left - first) * rate * (1 + 1e-6) + 1e-3


@given(RATES, st.floats(0, 1e6), PACKETS)
def test_the_queue_stays_within_its_limit(rate, limit, packets):
    queue, now, largest = LinkQueue(rate, 0.0, limit), 0.0, 0
    for gap, n_bytes in packets:
        now += gap
        if queue.offer(now, n_bytes) is not None:
            largest = max(largest, n_bytes)
        # An idle link takes one packet of any size.
        assert queue.backlog_bytes(now) <= max(limit, largest) * (1 + 1e-6) + 1e-3


@given(RATES, DELAYS, PACKETS)
def test_without_a_limit_nothing_is_dropped(rate, delay, packets):
    queue = LinkQueue(rate, delay, math.inf)
    assert len(through(queue, packets)) == len(packets)


@given(PACKETS, DELAYS)
def test_an_infinite_rate_only_delays(packets, delay):
    out = through(LinkQueue(math.inf, delay, 0.0), packets)
    assert len(out) == len(packets)
    assert all(left == at + delay for at, left, _ in out)


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 9000), DELAYS), max_size=40))
def test_a_delay_that_shrinks_lets_nothing_overtake(packets):
    queue, now, out = LinkQueue(1e8, 0.0, math.inf), 0.0, []
    for gap, n_bytes, delay in packets:
        now += gap
        queue.delay_s = delay
        out.append(queue.offer(now, n_bytes))
    assert all(a <= b for a, b in pairwise(out))


@given(st.integers(1, 65_000), st.integers(1, 9000), st.integers(34, 120))
def test_wire_bytes_are_those_of_the_real_packets(payload, segment, header):
    sizes = [min(segment, payload - at) + header for at in range(0, payload, segment)]
    assert wire_bytes(header + payload, segment, header) == sum(sizes)


TCP_OFFSET, TCP_WORDS = 34, 8


def frame(payload: int, segment: int) -> bytes:
    """A TCP frame over IPv4 with its virtio-net header, TCP options included."""
    kind = 1 if segment else 0
    header = struct.pack("<BBHHHH", 1, kind, TCP_OFFSET + TCP_WORDS * 4, segment, TCP_OFFSET, 16)
    tcp = bytes(12) + bytes([TCP_WORDS << 4]) + bytes(TCP_WORDS * 4 - 13)
    return header + bytes(TCP_OFFSET) + tcp + bytes(payload)


@pytest.fixture
def link() -> DelayLink:
    return DelayLink((-1, -1), (LinkQueue(1e6, 0.1, 1e5), LinkQueue(1e6, 0.1, 1e5)))


def test_what_a_frame_counts():
    assert wire_bytes(1514, 0, 54) == 1514
    assert frame_wire_bytes(frame(1000, 0)) == 1000 + 66
    assert frame_wire_bytes(frame(3000, 1448)) == 3000 + 3 * 66  # unsegmented: headers per packet
    assert frame_wire_bytes(frame(0, 1448)[: 10 + TCP_OFFSET]) == TCP_OFFSET


def test_settings_apply_to_both_directions(link):
    link.change({"rate_bps": 5e6, "delay_s": 0.2, "loss": 0.5, "up": False})
    state = link.state()
    assert (state["rate_bps"], state["delay_s"], state["loss"], state["up"]) == (
        5e6,
        0.2,
        0.5,
        False,
    )
    assert state["limit_bytes"] == 1e5


def test_a_port_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_LOWEST", port)
        with pytest.raises(MissingError, match="found no free port among 1, expected 1"):
            free_ports(1, port + 1)


IN_ORDER = """
from examples.testbed import ports
class InOrder:
    sample = staticmethod(lambda places, count: places[:count])
ports._dice = InOrder
print(*ports.free_ports(5, 20_000), flush=True)  # of hundreds, whoever else has some
input()
"""


def test_two_processes_are_not_given_the_same() -> None:
    words = [sys.executable, "-c", IN_ORDER]
    first = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with first:
        assert first.stdout and first.stdin
        theirs = set(first.stdout.readline().split())
        second = subprocess.run(words, input="\n", capture_output=True, text=True, check=True)
        ours = set(second.stdout.split())
        first.communicate("\n")
    assert len(theirs) == 5 and len(ours | theirs) == 10
    third = subprocess.run(words, input="\n", capture_output=True, text=True, check=True)
    assert theirs & set(third.stdout.split())  # given back by those that have ended


@pytest.fixture
def pidfd() -> Iterator[int]:
    """This process, of which the kernel may forbid copies as well."""
    fd = os.pidfd_open(os.getpid())
    try:
        os.close(syscalls.pidfd_getfd(fd, fd))
    except OSError as error:
        pytest.skip(f"pidfd_getfd: {error.strerror}")
    yield fd
    os.close(fd)


def test_a_socket_that_was_closed_meanwhile_is_passed_over(pidfd: int) -> None:
    with socket.socket() as sock:
        number = sock.fileno()
        assert number in _sockets(os.getpid())
    assert not _widen(pidfd, number)


# Starts a child of its own that ignores TERM, tells both ids, and waits for ever.
FAMILY = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True: time.sleep(60)
print(child, flush=True)
while True: time.sleep(60)
"""


def test_a_program_that_is_not_there():
    with pytest.raises(MissingError, match="cannot run no-such-program: not found"):
        procs.run(["no-such-program"])


def test_a_program_that_fails_is_quoted():
    with pytest.raises(AdonError, match=r": exit code 3: second\Z"):
        procs.run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"])


def test_a_program_that_does_not_end():
    with pytest.raises(AdonError, match=r"no end within 0.05 s"):
        procs.run(["sleep", "60"], timeout_s=0.05)


def test_a_daemon_stops_with_all_it_started(tmp_path: Path):
    daemon = procs.Daemon([sys.executable, "-c", FAMILY], tmp_path / "log")
    grandchild = int(daemon.wait((tmp_path / "log").read_text))
    watch = os.pidfd_open(grandchild)
    assert daemon.running()
    daemon.stop()
    daemon.stop()
    assert not daemon.running()
    assert procs._ended(watch, 20)
    os.close(watch)


def test_a_daemon_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path):
    words = [sys.executable, "-c", "raise SystemExit('no such device')"]
    daemon = procs.Daemon(words, tmp_path / "log", name="link")
    with pytest.raises(AdonError, match="link ended: no such device"):
        daemon.wait(lambda: False)
    daemon.stop()


def test_a_daemon_that_does_not_get_ready_is_reported(tmp_path: Path):
    daemon = procs.Daemon(["sleep", "60"], tmp_path / "log")
    with pytest.raises(AdonError, match="sleep did not get ready: no output"):
        daemon.wait(lambda: False, 0.0)
    daemon.stop()
