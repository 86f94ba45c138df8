"""Downloads by wget, on real switches with a real broker: the watcher sees which connections are
whose."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from agents_rig import RESEARCHER, TOKEN, Site, up
from gridftp_rig import PEGASUS_TRANSFER
from hooks_world import PATIENT_S, POST, PRE, write_config
from ovs_rig import L2, L3, in_netns
from planned_world import NAME, File, Planned
from test_hooks_tuned import environment_of
from waiting import until

from examples.soykb.scenario import LAYOUT
from examples.testbed.network import Network
from monitors.watcher import registry
from network_provisioner.base.model import Transit, TransitState

pytestmark = [pytest.mark.component, pytest.mark.root]

PORT = 8080
JOB = "stage_inter_local_count_ID2_0"
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


class Workflow:
    """One of an application, with a job at tacc that downloads a file from a URL of mu."""

    def __init__(self, site: Site, application: str, url: str, size: int, **config: str) -> None:
        self.site, self.size = site, size
        uuid = f"11111111-2222-3333-4444-{len(application):012}"
        self.transit = f"{uuid}:{JOB}:0:mu-tacc"
        self.run = site.folder / application
        plan = Planned(self.run, uuid)
        dump = self.run / "braindump.yml"
        said = dump.read_text().replace(': "mini"', f': "{application}"')
        dump.write_text(said.replace('user: "ada"', f'user: "{RESEARCHER}"'))
        name, there = f"{application}.fq", f"file://{site.folder}/arrived"
        (site.folder / name).write_bytes(os.urandom(size))
        moved = File(name, "mu", f"{url}/{name}", "tacc", f"{there}/{name}", size)
        self.submit = plan.transfer_job(JOB, [moved])
        token = site.folder / "u.token"
        token.write_text(TOKEN + RESEARCHER)
        token.chmod(0o600)
        config |= {"token_file": str(token), "ca": str(site.authority.file)}
        self.config = write_config(self.run / "hooks.json", site.url, **config)

    def hook(self, script: Path, *words: str) -> None:
        argv = [sys.executable, "-I", "-S", str(script), "--config", str(self.config), JOB, *words]
        subprocess.run(argv, cwd=self.run, check=True, timeout=PATIENT_S)

    def move(self) -> None:
        """The job, and POST."""
        given = environment_of(self.submit)
        path = given["PATH"].replace("/opt/site/bin", os.environ["PATH"])
        argv = [*in_netns("tacc"), sys.executable, str(PEGASUS_TRANSFER), "-n", "1"]
        argv += ["-f", str(self.submit.with_suffix(".in"))]
        folder = self.submit.with_suffix(".multipart")
        folder.mkdir(exist_ok=True)
        env = os.environ | given | {"PATH": path, "PEGASUS_MULTIPART_DIR": str(folder)}
        with (self.run / "log").open("w") as log:
            code = subprocess.call(argv, env=env, stdout=log, stderr=log, timeout=PATIENT_S)
        assert code == 0, (self.run / "log").read_text()
        self.hook(POST, "0", "0")

    def now(self) -> Transit:
        return self.site.client.get(self.transit)


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
        url = f"http://{address}:{PORT}{tmp_path}"
        workflows = [
            Workflow(site, name, url, size, watch=str(watch))
            for name, size in (("neuroblastoma", 24_000_000), ("soykb", 6_000_000))
        ]
        try:
            download(*workflows)
        finally:
            registry.end(watch, PATIENT_S)


def download(*workflows: Workflow) -> None:
    for workflow in workflows:
        workflow.hook(PRE, "0", "1")
    assert [tuple(workflow.now().grant.path) for workflow in workflows] == [L2, L3]
    running = [threading.Thread(target=workflow.move, daemon=True) for workflow in workflows]
    for workflow, thread in zip(workflows, running, strict=True):
        runs(workflow)
        thread.start()
    until(lambda: all(workflow.now().request.flows for workflow in workflows), "flows of both")
    (first,), (second,) = (workflow.now().request.flows for workflow in workflows)
    assert first.src_ports == second.src_ports == (PORT, PORT)
    assert first.dst_ports != second.dst_ports
    (workflows[0].site.folder / "rest").touch()
    for thread in running:
        thread.join()
    for workflow in workflows:
        ended = workflow.now()
        assert (ended.state, ended.usage.bytes) == (TransitState.RELEASED, workflow.size)
        # The first half went as best effort.
        assert ended.request.size_bytes and ended.usage.switch_bytes >= workflow.size // 3
