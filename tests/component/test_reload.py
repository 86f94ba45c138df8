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
from dataclasses import replace
from pathlib import Path

import pytest
from http_load import broker_process

from monitors.archive.archive import Archive, Measurement
from network_provisioner.base.flows import Flow
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
        wait_for(lambda: "the configuration is unchanged" in log.read_text())
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


def test_renamed_nodes_keep_transits_reservations_policies_drains_and_measurements(
    tmp_path: Path,
) -> None:
    def renamed(text: str) -> str:
        for was, name in (("d0", "mu"), ("s0", "core")):
            text = text.replace(f'"{was}"', f'"{name}"')
            text = text.replace(f'"name": "{name}"', f'"name": "{name}", "was": "{was}"')
        return text

    file, log, archive = tmp_path / "adon.yml", tmp_path / "log", tmp_path / "archive.sqlite"
    with Archive(archive) as written:
        now = time.time()
        for subject in ("d0>d1", "d0>d1/s0-s1", "d2>d3/s2-s3"):
            written.record(Measurement(subject, "rtt", subject, 0.01, "s", at=now, source="test"))
    with broker_process(tmp_path) as url:
        client = BrokerClient(url, PATIENT_S)
        now = time.time()
        asks = [
            TransitRequest(f"t{n}", "d0", "d1", template="bulk", lease_s=600.0, user="ada",
                           flows=(Flow("tcp", dst_ports=(5000 + n, 5000 + n)),))
            for n in range(3)
        ]  # fmt: skip
        asks.append(TransitRequest("later", "d1", "d0", template="bulk", start=now + 3600.0))
        before = {transit.id: transit for transit in map(client.request, asks)}
        assert {t.state for t in before.values()} == {"installed", "held"}
        policy = {"name": "p", "type": "user", "strategy": "10-3", "specs": ["ada", "bob"],
                  "action": "start", "links": [["s0", "s1"]]}  # fmt: skip
        client.put_policy(policy)
        client.drain("s0-s3", now + 7200.0, now + 7300.0, "")
        booked = client.accounting(by="user")
        pid = int(subprocess.check_output(["pgrep", "-f", f"serve --config {file}"]))
        file.write_text(renamed(file.read_text()))
        os.kill(pid, signal.SIGHUP)
        wait_for(lambda: "core" in [node["name"] for node in client.topology()["nodes"]])
        for name, was in before.items():
            is_now = client.get(name)
            assert (is_now.state, is_now.grant.moves) == (was.state, 0)
            assert is_now.grant.path == json.loads(renamed(json.dumps(was.grant.path)))
            assert {is_now.request.src, is_now.request.dst} == {"mu", "d1"}
        assert all(client.request(ask).id == ask.id for ask in asks)  # by the former names
        assert client.request(replace(asks[0], src="mu")).state == "installed"
        assert [p["links"] for p in client.policies()] == [[["core", "s1"], ["s1", "core"]]]
        assert [d["element"] for d in client.drains()] == ["core-s3"]
        assert [a["user"] for a in client.accounting(by="user")] == [a["user"] for a in booked]
        assert client.health()["status"] == "ok"
        os.kill(pid, signal.SIGHUP)  # the former names still stand in the file
        wait_for(lambda: log.read_text().count("is read again") == 2)
        wait_for(lambda: client.get("t0").state == "installed")
        assert log.read_text().count("mu was d0") == 1
    with Archive(archive, read_only=True) as known:
        subjects = {row[0] for row in known.engine.rows("SELECT subject FROM measurement")}
    assert {"mu>d1", "mu>d1/core-s1", "d2>d3/s2-s3"} <= subjects
    assert not [subject for subject in subjects if "d0" in subject or "s0" in subject]
