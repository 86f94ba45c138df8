"""The hook as HTCondor starts it: whatever it meets, it leaves with 0 and says what came of it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import hooks_world
import pytest
from hooks_world import ROOT, http, listening, respond
from transfers_world import AD

from condor_plugins.transfers import jobad

HOOK = ROOT / "condor_plugins/transfers/shadow_prepare.py"


def ad_text(folder: Path, **more: jobad.Value) -> str:
    (folder / "in.dat").write_bytes(b"x" * 1000)
    ad = {**AD, "Iwd": str(folder), "TransferInput": "in.dat", "TransferExecutable": False, **more}
    return "".join(jobad.line(name, value) for name, value in ad.items())


def hook(text: str, *arguments: str, python: tuple[str, ...] = ("-I", "-S")) -> jobad.JobAd:
    done = subprocess.run(
        [sys.executable, *python, str(HOOK), *arguments],
        input=text.encode(),
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return jobad.parse(done.stdout.decode().splitlines())


def config(folder: Path, url: str, **more: object) -> tuple[str, str]:
    path = folder / f"adon transfers {len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"broker": url, "site": "local", "timeout_s": 0.5, **more}))
    return "--config", str(path)


def dribble(connection: socket.socket) -> None:
    connection.recv(65536)
    with suppress(OSError):
        for byte in http("200 OK", b" " * 1000):
            connection.sendall(bytes([byte]))
            time.sleep(0.05)


BROKEN: dict[str, Callable[[socket.socket], None]] = {
    "says nothing": hooks_world.never,
    "dribbles": dribble,
    "sends no answers": respond(http("200 OK", b'{"answers": []}')),
    "sends nonsense": respond(http("200 OK", b'{"answers": [{"transit": {"id": 7}}]}')),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_broker_costs_the_path_alone(how: str, tmp_path: Path) -> None:
    with listening(BROKEN[how]) as url:
        said = hook(ad_text(tmp_path), *config(tmp_path, url))
    assert said["AdonInState"] == "unasked"
    assert str(said["AdonInReason"]).startswith("best effort: ")
    assert said["AdonInTold"] is False
    assert said["AdonInBytes"] == 1000
    assert said["AdonInId"] == "condor:ap@ap.test-12.0-1795283502:in:1"


def test_what_is_not_set_up_is_said(tmp_path: Path) -> None:
    text, url = ad_text(tmp_path), "http://127.0.0.1:9"
    for arguments, why in (
        ((), "expected --config FILE"),
        (("--config", "/gone"), "/gone: cannot be read"),
        (config(tmp_path, url, site=None), "found no 'site'"),
        (config(tmp_path, url, token_file="/gone"), "/gone: cannot be read"),
        (config(tmp_path, "gopher://x"), "broker URL"),
    ):
        said = hook(text, *arguments)
        assert said["AdonInState"] == "unasked"
        assert why in str(said["AdonInReason"])
    lost = hook(ad_text(tmp_path, GlobalJobId=""), *config(tmp_path, url))
    assert "found no GlobalJobId" in str(lost["AdonInReason"])
    nowhere = hook(ad_text(tmp_path, MachineAttrAdonSite0=""), *config(tmp_path, url))
    assert (nowhere["AdonInState"], "names no site" in str(nowhere["AdonInReason"])) == (
        "none",
        True,
    )


def test_a_job_that_moves_nothing_needs_no_broker_nor_settings(tmp_path: Path) -> None:
    for ad in (ad_text(tmp_path, ShouldTransferFiles="NO"), ad_text(tmp_path, TransferInput="")):
        assert hook(ad)["AdonInState"] == "none"
    for junk in ("", "\0\xff = \n= =\n", "JobUniverse = 99999999999999999999999999\n"):
        assert hook(junk)["AdonInState"] == "none"


def test_what_moves_nothing_imports_nothing_of_the_brokers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-I", "-S", str(HOOK)],
        input=ad_text(tmp_path, ShouldTransferFiles="NO").encode(),
        capture_output=True,
        check=True,
        timeout=120,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "condor_plugins.transfers.jobad" in imported
    assert imported.isdisjoint({"network_provisioner", "json", "pathlib", "dataclasses", "re"})
