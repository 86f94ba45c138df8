"""The hook as HTCondor starts it: whatever it meets, it exits with 0 and reports the result."""

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
from file_server import FileServer
from hooks_world import ROOT, http, listening, respond
from transfers_world import AD, JOB

from condor_plugins.jobs import jobad
from condor_plugins.urls.sources import paths_of

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
        (("--config", "/gone"), "/gone: found no such file"),
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


def test_urls_of_known_sites_alone_are_asked_for(tmp_path: Path) -> None:
    """The broker answers nothing: what would be asked for is on record all the same."""
    with FileServer({"/a": b"x" * 77}) as web, listening(hooks_world.never) as url:
        elsewhere = "https://data.example.org/b"
        words = config(tmp_path, url, sources={f"{web.url}/": "mu"})
        said = hook(ad_text(tmp_path, TransferInput=f"in.dat,{web.url}/a,{elsewhere}"), *words)
        alone = hook(ad_text(tmp_path, TransferInput=f"{web.url}/a"), *words)
        there = {"TransferInput": f"{web.url}/a", "MachineAttrAdonSite0": "mu"}
        at_home = hook(ad_text(tmp_path, **there), *words)
    (path,) = paths_of({**AD, **said})
    assert (path.id, path.site, path.host) == (f"condor:{JOB}:in@mu:1", "mu", "127.0.0.1")
    assert (said["AdonInState"], said["AdonInTold"]) == ("unasked", False)
    assert "no site is known of data.example.org" in str(said["AdonInReason"])
    assert "AdonRateBps" not in said
    # How large it is a server has a second to say, and may be slower than that.
    assert [(p.id, p.site, p.host) for p in paths_of({**AD, **alone})] == [
        (path.id, path.site, path.host)
    ]
    assert (alone["AdonInState"], alone["AdonInTold"], "AdonInId" in alone) == (
        "none",
        False,
        False,
    )
    # Of a site's own files nothing crosses the network.
    assert at_home == {
        "AdonInBytes": 0, "AdonInState": "none", "AdonInReason": "the access point sends no input",
    }  # fmt: skip


def test_a_url_of_no_known_site_costs_nothing_but_a_line(tmp_path: Path) -> None:
    text = ad_text(tmp_path, TransferInput="https://user:secret@data.example.org/b?sign=secret")
    said = hook(text, *config(tmp_path, "http://127.0.0.1:9"))
    assert said["AdonInState"] == "none"
    assert said["AdonInReason"] == (
        "the access point sends no input; best effort: no site is known of data.example.org"
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
    assert "condor_plugins.jobs.jobad" in imported
    assert imported.isdisjoint({"network_provisioner", "json", "pathlib", "dataclasses", "re"})


def test_who_fetches_nothing_by_url_loads_nothing_for_it(tmp_path: Path) -> None:
    words = [sys.executable, "-X", "importtime", "-I", "-S", str(HOOK)]
    done = subprocess.run(
        [*words, *config(tmp_path, "http://127.0.0.1:9")],
        input=ad_text(tmp_path).encode(),
        capture_output=True,
        check=True,
        timeout=120,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "network_provisioner.client.path_requests" in imported
    assert imported.isdisjoint({"condor_plugins.urls", "subprocess", "threading"})
