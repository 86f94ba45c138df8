"""``adon init`` on real Open vSwitch: from a site catalog to a granted transit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ovs_rig import IN_SWITCHES

from adon.config.adon_yml import load_config
from examples.soykb.scenario import LAYOUT
from examples.testbed import netns
from examples.testbed.layout import OPENFLOW_LISTEN, Link
from examples.testbed.network import Network
from network_provisioner.topology.data import topology_from_dict

pytestmark = [pytest.mark.component, pytest.mark.root]
CATALOG = """
pegasus: "5.0"
sites:
  - name: mu
    directories:
      - type: sharedScratch
        path: /scratch
        fileServers: [{url: "gsiftp://10.10.0.1/scratch", operation: all}]
"""


ROUTER = "10.10.1.1"
CODE = (
    "from adon.cli import init, main; init._QUIET = 0.0005; "
    "from adon.init import sites; sites._CONNECT_S = 0.1; "
    "from network_provisioner.controllers.openflow import driver; driver._DISCOVER_S = 0.5; "
    "raise SystemExit(main.main())"
)


def test_from_a_site_catalog_to_a_granted_transit(network: Network, tmp_path: Path) -> None:
    def init(*words: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ADON_")}
        # It ends as soon as all is found.
        words = ("init", *words, "--listen-for", "600 s")
        done = subprocess.run(
            [sys.executable, "-c", CODE, *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(done.stdout, done.stderr)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    sites = {name: LAYOUT.host(name) for name in ("mu", "tacc")}
    (tmp_path / "sites.yml").write_text(CATALOG.replace("10.10.0.1", sites["mu"].address))
    (router,) = LAYOUT.routers
    netns.batch(router.netns, ["link set lo up", f"addr add {ROUTER}/32 dev lo"])
    netns.batch(None, [f"neigh replace {ROUTER} lladdr {router.macs['s1']} dev dp0"])
    words = ["--sites", "sites.yml", "--dtn", f"tacc={sites['tacc'].address}"]
    words += ["--switches", OPENFLOW_LISTEN, "--exec", " ".join(IN_SWITCHES)]
    said = init("--yes", *words)
    assert "transit tacc to mu: granted on tacc > s2 > s1 > mu, and released" in said
    config = load_config(tmp_path / "adon.yml")
    assert not Path(config.broker.state).exists()
    made = topology_from_dict(config.topology)
    assert {name: made.nodes[name].mac for name in sites} == {n: h.mac for n, h in sites.items()}
    overlay, routed = LAYOUT.link("l2"), LAYOUT.link("l3")
    (link,) = (link for link in made.whole_links if {link.a, link.b} == {"s1", "s2"})
    assert link.ports == {name: LAYOUT.port(overlay, name) for name in ("s1", "s2")}
    assert set(link.devices or ()) == {"s1", "s2"}
    assert _as_measured(link.delay_s, overlay)
    assert made.nodes["r1"].macs == router.macs
    halves = [link for link in made.whole_links if "r1" in (link.a, link.b)]
    assert {link.layer for link in halves} == {"l3"}
    assert [link.ports for link in halves] == [{n: LAYOUT.port(routed, n)} for n in ("s1", "s2")]
    assert _as_measured(sum(link.delay_s for link in halves), routed)

    text = (tmp_path / "adon.yml").read_text()
    edited = text.replace("layer: l2", "layer: l2, loss: 0.001").replace(
        "broker:", "# Ours.\nbroker:"
    )
    (tmp_path / "adon.yml").write_text(edited)
    said = init("--dry-run", "--dtn", f"iplant={LAYOUT.host('iplant').address}")
    changes = [line for line in said.splitlines() if line[:2] in ("+ ", "- ", "-", "+")]
    assert len(changes) == 2  # a node and a link
    assert all(line[0] == "+" and "iplant" in line for line in changes)
    for name in ("s1", "s2"):
        assert "cookie=0xad1d02" not in network.switches.ofctl(name, "dump-flows")  # of its search
        network.switches.ofctl(name, "del-flows")  # the broker's stay, as ever
    netns.batch(router.netns, [f"addr del {ROUTER}/32 dev lo"])  # a device would lose its routes
    netns.batch(None, [f"neigh del {ROUTER} dev dp0"])


def _as_measured(delay_s: float, line: Link) -> bool:
    """A busy machine adds to what is measured; what it adds to the way to the controller is taken
    off, and the file has three digits."""
    return 0.8 * line.delay_s <= delay_s < line.delay_s + 0.2
