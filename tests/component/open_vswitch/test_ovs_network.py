"""The network of the testbed with the real programs, and GridFTP over it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from gridftp_rig import PATIENCE_S, gridftp_programs, pegasus_transfer
from ovs_rig import in_netns
from waiting import until

from adon.machine import packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.gridftp import PORT, GridFtp, endpoints
from examples.testbed.layout import OPENFLOW_LISTEN
from examples.testbed.network import Network
from examples.testbed.procs import alive
from network_provisioner.base.errors import MissingError

# HTCondor's jobs run as user 1000 of a user namespace that owns root's files.
AS_POOL_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


# What is put on the switches: every address behind its port, the other switch over a path.
def route(network: Network, layer: str) -> None:
    for switch in LAYOUT.switches:
        network.switches.ofctl(switch, "del-flows")
        for site in LAYOUT.sites:
            if site.switch == switch:
                actions = f"set_field:{site.mac}->eth_dst,output:{site.number}"
            elif layer == "l2":
                actions = f"output:{LAYOUT.port(LAYOUT.link('l2'), switch)}"
            else:
                (router,) = LAYOUT.routers
                port = LAYOUT.port(router.link, switch)
                actions = f"set_field:{router.macs[switch]}->eth_dst,output:{port}"
            flow = f"priority=10,ip,nw_dst={site.address},actions={actions}"
            network.switches.ofctl(switch, "add-flow", flow)


def carried(network: Network, link: str) -> int:
    """Bytes the link has taken in both directions."""
    return sum(d["bytes"] for d in network.link(link)["directions"])


def at_rest(network: Network, link: str) -> int:
    """The same, once what was on its way there before is over."""
    seen, quiet, end = carried(network, link), 0, time.monotonic() + PATIENCE_S
    while quiet < 10:
        assert time.monotonic() < end
        time.sleep(0.05)
        now = carried(network, link)
        seen, quiet = now, quiet + 1 if now == seen else 0
    return seen


def forwarded(network: Network, switch: str, address: str) -> int:
    """Bytes a switch has counted on its flow towards an address."""
    flows = network.switches.ofctl(switch, "dump-flows", f"ip,nw_dst={address}")
    return int(flows.partition("n_bytes=")[2].partition(",")[0])


# Connects and tells the seconds it took, the shorter of two: both are one round trip.
CONNECT = """
import socket, sys, time
took = []
for _ in range(2):
    start = time.monotonic()
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30).close()
    took.append(time.monotonic() - start)
print(min(took))
"""


@pytest.fixture(scope="module")
def grid(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridFtp]:
    grid = GridFtp(endpoints(LAYOUT), tmp_path_factory.mktemp("grid"), gridftp_programs())
    grid.start()
    yield grid
    grid.stop()
    for switch in LAYOUT.switches:
        network.switches.ofctl(switch, "del-flows")


def test_up_and_down_leave_the_box_as_it_was(tmp_path: Path) -> None:
    network = Network(LAYOUT, packages.ensure("openvswitch", progress=print) / "wrap", tmp_path)
    before = state()
    for _ in range(2):
        network.up()
        network.up()
        assert "adon-sw" in state()[1]
        network.down()
        network.down()
        reaped(before[2])
        assert state() == before


def test_a_network_that_cannot_be_made_is_removed(tmp_path: Path) -> None:
    before = state()
    with pytest.raises(MissingError, match="ovsdb-tool is not in"):
        Network(LAYOUT, tmp_path, tmp_path).up()
    reaped(before[2])
    assert state() == before


def reaped(processes: int) -> None:
    """What was killed ends, and so do its children."""
    until(lambda: state()[2] <= processes, "processes to end")
    assert state()[2] == processes


def state() -> tuple[str, str, int]:
    words = (["ip", "-br", "addr"], ["ip", "netns"])
    said = [subprocess.run(w, capture_output=True, text=True, check=True).stdout for w in words]
    # The box's init may not have buried yet what ended, now or in a test before.
    return said[0], said[1], sum(map(alive, psutil.process_iter()))


def test_switches_are_numbered_and_pointed_at_the_controller(network: Network) -> None:
    for switch, dpid in LAYOUT.switches.items():
        vsctl = network.switches.vsctl
        assert vsctl("get-controller", switch).strip() == f"tcp:{OPENFLOW_LISTEN}"
        assert vsctl("get-fail-mode", switch).strip() == "secure"
        shown = network.switches.ofctl(switch, "show")
        assert f"dpid:{dpid:016x}" in shown
        for link in LAYOUT.topology()["links"]:
            if switch in link["ports"]:
                assert f"{link['ports'][switch]}({link['devices'][switch]})" in shown


def test_secure_switches_forward_nothing_untold(network: Network) -> None:
    for switch in LAYOUT.switches:
        network.switches.ofctl(switch, "del-flows")
        assert "actions" not in network.switches.ofctl(switch, "dump-flows")


@pytest.mark.parametrize("layer", ["l2", "l3"])
def test_the_round_trip_is_that_of_the_wide_area(
    network: Network, grid: GridFtp, layer: str
) -> None:
    route(network, layer)
    words = [*in_netns("mu"), sys.executable, "-c", CONNECT]
    end = grid.sites["iplant"]
    done = subprocess.run(
        [*words, end.address, str(end.port)], capture_output=True, text=True, check=True
    )
    # Never less than the link's delay; how much more is up to how busy this machine is.
    assert float(done.stdout) >= 2 * LAYOUT.link("l2").delay_s


@pytest.mark.parametrize(
    ("layer", "prefix"), [pytest.param("l3", (), marks=pytest.mark.long), ("l2", AS_POOL_USER)]
)
def test_pegasus_transfer_crosses_the_path_it_was_given(
    network: Network, grid: GridFtp, layer: str, prefix: tuple[str, ...], tmp_path: Path
) -> None:
    route(network, layer)
    size = 1_500_000
    source = tmp_path / "raw.fq"
    source.write_bytes(os.urandom(size))
    other = next(link.name for link in LAYOUT.links if link.name != layer)
    before, elsewhere = carried(network, layer), at_rest(network, other)
    start = time.monotonic()
    pegasus_transfer(grid, tmp_path, source, tmp_path / "mu" / "raw.fq", prefix)
    seconds = time.monotonic() - start
    assert carried(network, layer) - before >= size
    assert carried(network, other) == elsewhere
    # No faster than the link, whatever the machine does.
    assert size * 8 / seconds <= LAYOUT.link(layer).rate_bps
    end = time.monotonic() + PATIENCE_S
    while forwarded(network, "s1", "10.10.0.1") < size and time.monotonic() < end:
        time.sleep(0.05)  # a switch's counters are a little behind
    assert forwarded(network, "s1", "10.10.0.1") >= size


def test_a_link_is_changed_while_it_runs(network: Network) -> None:
    before = network.link("l2")
    changed = network.link("l2", rate_bps=50e6, delay_s=0.01, loss=0.5, up=False)
    assert (changed["rate_bps"], changed["delay_s"], changed["up"]) == (50e6, 0.01, False)
    network.link("l2", rate_bps=before["rate_bps"], delay_s=before["delay_s"], loss=0, up=True)
    assert network.link("l2")["rate_bps"] == LAYOUT.link("l2").rate_bps


def test_every_packet_socket_of_the_switches_is_widened(network: Network) -> None:
    # A socket per port and switch-internal port, and the shared one for sending.
    ports = len(LAYOUT.sites) + 4
    assert network.switches.widen_buffers("s1") > ports


@pytest.mark.long
def test_stopping_ends_transfers_in_flight(network: Network, tmp_path: Path) -> None:
    route(network, "l3")
    sites = {name: replace(end, port=PORT + 1) for name, end in endpoints(LAYOUT).items()}
    grid = GridFtp(sites, tmp_path, gridftp_programs())
    before = state()[2]
    grid.start()
    source = tmp_path / "raw.fq"
    source.write_bytes(bytes(30_000_000))
    client = subprocess.Popen(
        ["globus-url-copy", "-p", "4", *(
            f"{grid.url(site)}{tmp_path / name}"
            for site, name in (("iplant", "raw.fq"), ("mu", "copy.fq"))
        )],
        env={**os.environ, **grid.transfer_env()},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    idle = carried(network, "l3")
    end = time.monotonic() + PATIENCE_S
    while carried(network, "l3") - idle < 1_000_000 and time.monotonic() < end:
        time.sleep(0.01)
    grid.stop()
    client.kill()
    client.wait()
    reaped(before)
