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
from examples.testbed.layout import OPENFLOW_LISTEN
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


def test_from_a_site_catalog_to_a_granted_transit(network: Network, tmp_path: Path) -> None:
    sites = {name: LAYOUT.host(name) for name in ("mu", "tacc")}
    (tmp_path / "sites.yml").write_text(CATALOG.replace("10.10.0.1", sites["mu"].address))
    words = ["init", "--yes", "--sites", "sites.yml", "--dtn", f"tacc={sites['tacc'].address}"]
    words += ["--switches", OPENFLOW_LISTEN, "--exec", " ".join(IN_SWITCHES)]
    words += ["--listen-for", "600 s"]  # it ends as soon as all is found
    code = (
        "from adon.cli import init, main; init._QUIET = 0.0005; "
        "from network_provisioner.controllers.openflow import driver; driver._DISCOVER_S = 0.5; "
        "raise SystemExit(main.main())"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ADON_")}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "transit tacc to mu: granted on tacc > s2 > s1 > mu, and released" in done.stdout
    config = load_config(tmp_path / "adon.yml")
    assert not Path(config.broker.state).exists()
    made = topology_from_dict(config.topology)
    assert {name: made.nodes[name].mac for name in sites} == {n: h.mac for n, h in sites.items()}
    overlay = LAYOUT.link("l2")
    (link,) = (link for link in made.whole_links if {link.a, link.b} == {"s1", "s2"})
    assert link.ports == {name: LAYOUT.port(overlay, name) for name in ("s1", "s2")}
    assert set(link.devices or ()) == {"s1", "s2"}
    for name in ("s1", "s2"):
        assert "cookie=0xad1d02" not in network.switches.ofctl(name, "dump-flows")  # of its search
        network.switches.ofctl(name, "del-flows")  # the broker's stay, as ever
