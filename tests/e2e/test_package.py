"""The Debian package on a Debian with systemd: from nothing to a transit on Open vSwitch, an
upgrade under load, and what a purge leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import debian_root
import pytest
from debian_root import Machine

ROOT = Path(__file__).resolve().parents[2]
NETWORK = """
topology:
  nodes:
  - {name: west, kind: site, address: 10.0.0.1, mac: "02:00:00:00:00:01"}
  - {name: east, kind: site, address: 10.0.0.2, mac: "02:00:00:00:00:02"}
  - {name: s1, kind: switch, dpid: 0x1}
  - {name: s2, kind: switch, dpid: 0x2}
  links:
  - {a: west, b: s1, capacity: 10 Gb/s, ports: {s1: 1}}
  - {a: s1, b: s2, capacity: 10 Gb/s, ports: {s1: 2, s2: 2}}
  - {a: east, b: s2, capacity: 10 Gb/s, ports: {s2: 1}}
controller: {driver: openflow, listen: "127.0.0.1:6653", bandwidth: meter}
broker: {listen: "127.0.0.1:8470", state: /var/lib/adon/state, archive: /var/lib/adon/archive}
"""
BRIDGE = (
    "add-br {0} -- set bridge {0} datapath_type=netdev fail_mode=secure protocols=OpenFlow13 "
    "other-config:datapath-id=000000000000000{1}"
)
PORTS = (
    "add-port s1 h1 -- set interface h1 type=internal ofport_request=1",
    "add-port s2 h2 -- set interface h2 type=internal ofport_request=1",
    "add-port s1 p12 -- set interface p12 type=patch options:peer=p21 ofport_request=2",
    "add-port s2 p21 -- set interface p21 type=patch options:peer=p12 ofport_request=2",
)
OF13 = ("-O", "OpenFlow13")


@pytest.fixture(scope="module")
def package() -> Path:
    if shutil.which("debootstrap") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("needs debootstrap and dpkg-deb (Debian)")
    subprocess.run(["make", "package"], cwd=ROOT, check=True)
    return max((ROOT / "dist").glob("adon_*.deb"), key=lambda file: file.stat().st_mtime)


@pytest.fixture
def machine(package: Path, tmp_path: Path) -> Iterator[Machine]:
    try:
        base = debian_root.base(print)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no Debian can be had: {error.stderr[-200:]!r}")
    with debian_root.machine(base, tmp_path) as made:
        made.run("ip", "link", "set", "lo", "up")
        made.wait(lambda: "ovs_version" in made.run("ovs-vsctl", "show", check=False), "OVS")
        for name in ("s1", "s2"):
            made.run("ovs-vsctl", *BRIDGE.format(name, name[1]).split())
        for port in PORTS:
            made.run("ovs-vsctl", *port.split())
        for port in ("h1", "h2"):
            made.run("ip", "link", "set", port, "up")
        with package.open("rb") as file:
            made.put_bytes(file, "/root/adon.deb")
        yield made


def live(machine: Machine) -> int:
    listed = json.loads(machine.run("adon", "transit", "list", "--json"))
    return sum(transit["state"] == "installed" for transit in listed)


def rules(machine: Machine) -> int:
    return machine.run("ovs-ofctl", *OF13, "dump-flows", "s1").count("cookie=")


@pytest.mark.long
@pytest.mark.root
@pytest.mark.timeout(3000)
def test_from_nothing_to_a_transit_then_an_upgrade_then_nothing(machine: Machine) -> None:
    files = listed(machine)
    began = time.monotonic()
    machine.run("dpkg", "-i", "/root/adon.deb")
    machine.put(NETWORK, "/etc/adon/adon.yml")
    controller = ["set-controller", "s1", "tcp:127.0.0.1:6653", "--"]
    machine.run("ovs-vsctl", *controller, "set-controller", "s2", "tcp:127.0.0.1:6653")
    machine.run("systemctl", "enable", "--now", "adon-broker")
    ask = ("adon", "transit", "request", "west", "east")
    machine.run(*ask, "--min", "1 Gb/s", "--id", "a", check=False)
    machine.wait(lambda: live(machine) == 1, "a transit")  # once the switches have tried again
    print(f"from nothing to a transit: {time.monotonic() - began:.0f} s")

    for number in range(99):
        port = f"{5000 + number}"
        machine.run(
            *ask, "--min", "10 Mb/s", "--lease", "1 h",
            "--id", f"t{number}", "--flow", port,
        )  # fmt: skip
    assert live(machine) == 100
    before, pid = rules(machine), machine.run("pgrep", "-f", "adon broker")
    machine.run("systemctl", "reload", "adon-broker")
    machine.wait(lambda: "ready" in health(machine), "the reload")
    assert machine.run("pgrep", "-f", "adon broker") == pid
    machine.run("dpkg", "-i", "/root/adon.deb")  # as an upgrade
    assert machine.run("pgrep", "-f", "adon broker") != pid
    machine.wait(lambda: "ready" in health(machine), "the new broker")
    assert live(machine) == 100
    machine.wait(lambda: rules(machine) == before, "rules")  # one is the watch's, which begins anew
    for unit in ("broker", "agent", "relay", "monitor"):
        score = machine.run("systemd-analyze", "security", "--no-pager", f"adon-{unit}")
        assert float(score.rpartition(": ")[2].split()[0]) <= 3, unit
    assert "granted" in machine.run("journalctl", "-u", "adon-broker", "--no-pager", "-o", "cat")

    machine.run("systemctl", "stop", "adon-broker")
    machine.run("adon", "broker", "clear", "--config", "/etc/adon/adon.yml")
    assert rules(machine) == 0
    machine.run("dpkg", "--purge", "adon")
    added = {path for path in listed(machine) - files if "/dpkg/" not in path}
    assert not [path for path in added if "adon" in path]
    assert "adon" not in machine.run("cat", "/etc/passwd", "/etc/group")


def listed(machine: Machine) -> set[str]:
    places = ("/etc", "/opt", "/usr", "/var/lib")
    return set(machine.run("find", *places, "-xdev", check=False).splitlines())  # some files go


def health(machine: Machine) -> str:
    """``ready`` where the broker works."""
    said = machine.run("adon", "topology", "show", check=False)
    return "ready" if "capacity" in said and "degraded" not in said else said
