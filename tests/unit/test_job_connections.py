"""Which connections the processes of a job have open."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from monitors.watcher.connections import Connection, JobConnections, Tables, flows
from network_provisioner.base.flows import MAX_FLOWS, Flow

CLIENT = """
import socket, sys
one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(one.getsockname()[1], flush=True)
one.recv(1)
"""


def test_the_processes_of_jobs_are_known_by_their_environment() -> None:
    clock = [0.0]
    seen = JobConnections(lambda: clock[0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        running = {}
        for job in ("stage_in", "stage_out"):
            env = {"PEGASUS_WF_UUID": f"wf-{port}", "PEGASUS_DAG_JOB_ID": job}
            argv = [sys.executable, "-I", "-S", "-c", CLIENT, str(port)]
            running[job] = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        for job, process in running.items():
            assert process.stdout is not None
            here = int(process.stdout.readline())
            assert seen(f"wf-{port}", job) == {Connection((here, port), "127.0.0.1")}
            clock[0] += 1.0
        assert seen("another", "stage_in") == set()
    for process in running.values():  # the server closed their connections
        process.communicate()
    assert seen(f"wf-{port}", "stage_in") == set()  # known from before, and gone


@pytest.mark.parametrize(("listens", "far"), [("::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")])
def test_connections_over_ipv6(listens: str, far: str) -> None:
    if not Path("/proc/net/tcp6").exists():
        pytest.skip("no IPv6 here")
    with socket.socket(socket.AF_INET6) as server, socket.socket(socket.AF_INET6) as client:
        server.bind((listens, 0))
        server.listen()
        client.connect(server.getsockname())
        ends = client.getsockname()[1], server.getsockname()[1]
        assert Connection(ends, far) in Tables().connections(Path(f"/proc/{os.getpid()}"))


def test_no_more_flows_than_a_transit_may_have() -> None:
    assert flows([(40_001, 80)], at_source=False) == [Flow("tcp", (80, 80), (40_001, 40_001))]
    assert len(flows([(port, 80) for port in range(40_000, 40_100)], True)) == MAX_FLOWS
