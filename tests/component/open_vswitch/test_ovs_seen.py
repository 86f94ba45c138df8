"""Downloads by wget, on real switches with a real broker: the watcher sees which connections are
whose."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hooks_world import PATIENT_S
from ovs_rig import L2, L3, in_netns
from planned_world import NAME
from test_hooks_tuned import await_that
from test_ovs_agents import JOB, Site, Workflow, up

from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from monitors.watcher import registry
from network_provisioner.base.model import TransitState

pytestmark = [pytest.mark.component, pytest.mark.root]

PORT = 8080
# Sends half of each file, and the rest when it is told to.
SERVER = """
import http.server, pathlib, sys, time
class Half(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = pathlib.Path(self.path).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        while not pathlib.Path("rest").exists():
            time.sleep(0.1)
        self.wfile.write(data[len(data) // 2 :])
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Half).serve_forever()
"""


def runs(workflow: Workflow) -> None:
    """As HTCondor notes it."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    named = f'Job submitted from host: <h>\n    [ DAGNodeName = "{JOB}"; ]'
    with (workflow.run / f"{NAME}-0.dag.nodes.log").open("a") as log:
        for number, text in (("000", named), ("001", "Job executing on host: <h>")):
            log.write(f"{number} (001.000.000) {at} {text}\n...\n")


def test_downloads_between_the_same_two_hosts_are_told_apart(
    network: Network, tmp_path: Path
) -> None:
    watch, address = tmp_path / "watch", LAYOUT.host("mu").address
    with up(Site(tmp_path)) as site:
        site.start("-c", SERVER, address, str(PORT), within=in_netns("mu"))
        urls = f"http://{address}:{PORT}{tmp_path}", f"file://{tmp_path}"
        workflows = [
            Workflow(site, name, urls, {}, in_netns("tacc"), watch=str(watch))
            for name in ("neuroblastoma", "soykb")
        ]
        try:
            download(*workflows)
        finally:
            registry.end(watch, PATIENT_S)


def download(*workflows: Workflow) -> None:
    for one in workflows:
        one.pre()
    assert [tuple(one.now().path) for one in workflows] == [L2, L3]
    running = [threading.Thread(target=one.move) for one in workflows]
    for one, thread in zip(workflows, running, strict=True):
        runs(one)
        thread.start()
    await_that(lambda: all(one.now().flows for one in workflows), "flows of both")
    (first,), (second,) = (one.now().flows for one in workflows)
    assert first["src_ports"] == second["src_ports"] == [PORT, PORT]
    assert first["dst_ports"] != second["dst_ports"]
    (workflows[0].site.folder / "rest").touch()
    for thread in running:
        thread.join()
    for one in workflows:
        ended = one.now()
        assert (ended.state, ended.bytes) == (TransitState.RELEASED, one.size)
        # The first half went as best effort.
        assert ended.size_bytes and ended.switch_bytes >= one.size // 3
