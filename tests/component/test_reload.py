"""SIGHUP: a broker reads its configuration again, and nobody notices."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from http_load import broker_process

from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient

pytestmark = pytest.mark.component
PATIENT_S = 120.0


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENT_S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_changed_network_is_served_without_a_refused_request(tmp_path: Path) -> None:
    file, log = tmp_path / "adon.yml", tmp_path / "log"
    with broker_process(tmp_path) as url:
        client = BrokerClient(url, PATIENT_S)
        src, dst = [n["name"] for n in client.topology()["nodes"] if n["kind"] == "site"][:2]
        client.request(TransitRequest("a", src, dst, template="bulk", lease_s=600.0))
        pid = int(subprocess.check_output(["pgrep", "-f", f"serve --config {file}"]))

        before = file.read_text()
        file.write_text(before.replace('"topology"', '"topologie"'))
        os.kill(pid, signal.SIGHUP)
        wait_for(lambda: "the configuration stays as it is" in log.read_text())
        assert re.search(r"unknown key .topologie.", log.read_text())

        config = json.loads(before)
        config["topology"]["nodes"].append({"name": "new", "kind": "switch", "dpid": 99})
        ports = {"s0": 99, "new": 1}
        link = {"a": "s0", "b": "new", "capacity": "1 Gb/s", "ports": ports}
        config["topology"]["links"].append(link)
        file.write_text(json.dumps(config))
        stop, failures = threading.Event(), list[Exception]()

        def ask() -> None:
            while not stop.is_set():
                try:
                    client.get("a")
                except Exception as error:
                    failures.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        os.kill(pid, signal.SIGHUP)
        wait_for(lambda: "new" in [node["name"] for node in client.topology()["nodes"]])
        stop.set()
        asking.join()
        assert not failures
        assert client.get("a").state == "installed" and client.health()["status"] == "ok"
