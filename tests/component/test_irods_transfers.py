"""Files between a zone and this machine, with the real client and a real end point of the protocol:
several streams, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from authority import Authority
from irods.password_obfuscation import encode

from condor_plugins.irods import files, plugin, results, transfer
from condor_plugins.irods.results import Result
from condor_plugins.irods.transfer import Limits
from examples.testbed.irods_zone import Fault, Zone
from monitors.workflows.planned.transferlist import SiteUrl, Transfer, dumps
from pegasus_hooks.planner.plan import transfer_tool
from pegasus_hooks.prepost.tuning import TOOLS

pytestmark = pytest.mark.component

MIB = 2**20
DATA = os.urandom(12 * MIB)
LIMITS = Limits(silence_s=60.0, tries=3, pause_s=0.02, chunk=2 * MIB, block=MIB)
SILENCE_S = {"hang": 2.0, "drop": 60.0}  # the first is waited for
HASTY = replace(LIMITS, silence_s=0.3)
TLS = {
    "irods_client_server_negotiation": "request_server_negotiation",
    "irods_client_server_policy": "CS_NEG_REQUIRE", "irods_encryption_algorithm": "AES-256-CBC",
    "irods_encryption_key_size": 32, "irods_encryption_num_hash_rounds": 16,
    "irods_encryption_salt_size": 8, "irods_ssl_verify_server": "hostname",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's folder, which is the working directory."""
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_CONDOR_JOB_AD", str(tmp_path / "job.ad"))
    monkeypatch.setattr(results, "CHUNK", len(DATA) // 3)  # so much is worth a stream
    streams(tmp_path, 3)
    return folder


@pytest.fixture
def zone(tmp_path: Path, folder: Path) -> Iterator[Zone]:
    with Zone(tmp_path / "vault") as zone:
        zone.put(f"{zone.home()}/big", DATA)
        log_in(zone, folder)
        yield zone


def log_in(zone: Zone, folder: Path, password: str = "secret", **more: str | int) -> None:
    settings = {
        "irods_host": zone.host, "irods_port": zone.port, "irods_user_name": "rods",
        "irods_zone_name": zone.name, **more,
    }  # fmt: skip
    (folder / "irods_environment.json").write_text(json.dumps(settings))
    (folder / ".irodsA").write_text(encode(password))


def streams(place: Path, count: int) -> None:
    (place / "job.ad").write_text(f"AdonStreams = {count}\n")


def got(zone: Zone, path: str = "big", limits: Limits = LIMITS) -> Result:
    """The result of one file of a user's home."""
    Path("got").unlink(missing_ok=True)
    before = {*Path().iterdir()}
    (result,) = files.move([(f"irods://{zone.home()}/{path}", "got")], False, limits)
    assert {*Path().iterdir()} - before == ({Path("got")} if result["TransferSuccess"] else set())
    return result


def sent(zone: Zone, path: str = "new", limits: Limits = LIMITS) -> Result:
    Path("data").write_bytes(DATA)
    (result,) = files.move([(f"irods://{zone.home()}/{path}", "data")], True, limits)
    return result


def details(result: Result) -> tuple[int, int, str]:
    """Streams, tries and by what it was verified."""
    data: Any = result["DeveloperData"]
    return data["TransferStreams"], data["TransferTries"], data["TransferChecksum"]


@pytest.mark.parametrize("count", [1, 3])
def test_both_directions_by_so_many_streams(zone: Zone, tmp_path: Path, count: int) -> None:
    streams(tmp_path, count)
    back = got(zone)
    assert Path("got").read_bytes() == DATA
    assert zone.calls["open"] == count
    there = sent(zone, "folder/that/is/new")
    assert zone.data(f"{zone.home()}/folder/that/is/new") == DATA
    assert zone.calls["open"] == 2 * count + 1  # the first time there was no such folder
    for result in (back, there):
        assert details(result) == (count, 1, "sha2")
        assert result["TransferTotalBytes"] == result["TransferFileBytes"] == len(DATA)


@pytest.mark.parametrize("action", ["drop", "hang"])
@pytest.mark.parametrize("count", [1, 3])
def test_goes_on_where_connections_broke(
    zone: Zone, tmp_path: Path, count: int, action: str
) -> None:
    streams(tmp_path, count)
    limits = replace(LIMITS, silence_s=SILENCE_S[action])
    times = 2 if action == "drop" else 1
    zone.faults = [Fault(call, action, len(DATA) // 2, times) for call in ("read", "write")]
    there_and_back = [got(zone, limits=limits), sent(zone, limits=limits)]
    assert Path("got").read_bytes() == zone.data(f"{zone.home()}/new") == DATA
    for result, call in zip(there_and_back, ("read", "write"), strict=True):
        used, tries, checksum = details(result)
        assert (used, checksum) == (count, "sha2")
        # A machine that stands still for as long as is waited makes more connections hang.
        assert tries == 1 + times or (tries > 1 + times and action == "hang")
        # A block or so for each connection that broke, and not all over again.
        assert zone.moved[call] <= len(DATA) + (tries - 1) * MIB


@pytest.mark.parametrize("call", ["login", "query", "open", "close", "checksum", "close_replica"])
def test_every_call_may_fail_once(zone: Zone, call: str) -> None:
    zone.faults = [Fault(call, "drop"), Fault(call, "drop")]
    assert got(zone)["TransferSuccess"]
    assert sent(zone)["TransferSuccess"]
    assert zone.data(f"{zone.home()}/new") == DATA


def test_a_server_without_tokens_is_written_by_one_stream(zone: Zone) -> None:
    zone.parallel = False
    assert details(sent(zone)) == (1, 1, "sha2")
    assert zone.data(f"{zone.home()}/new") == DATA


def why(result: Result) -> str:
    assert not result["TransferSuccess"]
    return str(result["TransferError"])


def clock(monkeypatch: pytest.MonkeyPatch, pace: float) -> None:
    """Have the transfer's own clock go so much faster than that of its connections."""

    def now() -> float:
        return pace * time.monotonic()

    monkeypatch.setattr(transfer, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))


@pytest.mark.parametrize("call", ["login", "query", "read"])
def test_a_get_that_hangs_ends(zone: Zone, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 1e-3)  # the connections are first to see it
    zone.faults = [Fault(call, "hang", times=1000)]
    assert "cannot be reached, or broke off (Could not receive server response)" in why(
        got(zone, limits=HASTY)
    )


@pytest.mark.parametrize("call", ["login", "open", "write", "checksum"])
def test_a_put_that_hangs_ends(zone: Zone, call: str) -> None:
    zone.faults = [Fault(call, "hang", times=1000)]
    # Which of the two clocks is first to see it depends on the machine.
    assert re.search("broke off|was cut off|not a byte moved", why(sent(zone, limits=HASTY)))


def test_a_server_that_sends_too_slowly_for_a_time_out_is_left(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.trickle_s = 0.1  # for each byte: no read of the socket takes as long as LIMITS allow
    clock(monkeypatch, 200.0)
    assert "not a byte moved for" in why(got(zone))


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_server_that_is_gone_mid_file(zone: Zone, call: str) -> None:
    zone.faults = [Fault(call, "drop", 5 * MIB, times=1000)]
    result = got(zone) if call == "read" else sent(zone)
    assert "broke off" in why(result)
    assert 5 * MIB <= result["TransferTotalBytes"] <= 8 * MIB  # one block for each stream


def test_what_a_user_can_mend(zone: Zone, folder: Path, tmp_path: Path) -> None:
    streams(tmp_path, 1)  # one answers
    home = zone.home()
    assert why(got(zone, "none")) == f"{home}/none: there is no such file in the zone"
    assert why(got(zone, "no/such")) == f"{home}/no/such: there is no such file in the zone"
    assert "that is a folder (collection)" in why(got(zone, "../rods"))
    zone.make_collection(f"{home}/sub")
    assert "that is a folder (collection)" in why(sent(zone, "sub"))
    zone.denied = {f"{home}/big"}
    assert why(got(zone)) == f"{home}/big: rods has no permission there"
    assert why(sent(zone, "big")) == f"{home}/big: rods has no permission there"
    zone.faults = [Fault("write", -110000)]
    assert "the zone's quota of rods is used up" in why(sent(zone))
    zone.faults = [Fault("open", -130000)]
    assert "iRODS says SYS_INVALID_INPUT_PARAM" in why(sent(zone))
    zone.faults = [Fault("open", -99999000)]
    assert "the server answers with the unknown code -99999000" in why(sent(zone))
    (result,) = files.move([("irods:///mars/home/a", "got")], False, LIMITS)
    assert why(result) == "/mars/home/a: the server knows no zone mars"
    (result,) = files.move([("irods://127.0.0.1:1/z/a", "got")], False, LIMITS)
    assert "127.0.0.1:1 cannot be reached" in why(result)
    zone.calls.clear()
    log_in(zone, folder, password="wrong")
    assert "the zone does not accept the password of rods" in why(got(zone))
    assert zone.calls["login"] == 2  # one, of two messages


def test_truncated_and_falsified(zone: Zone) -> None:
    replica = zone.objects[f"{zone.home()}/big"][0]
    replica.checksum = "sha2:" + "A" * 43 + "="
    assert "found the sha2 checksum" in why(got(zone))
    replica.size += 5
    assert f"it ends at byte {len(DATA)}, expected {len(DATA) + 5}: it is truncated" in why(
        got(zone)
    )


@pytest.mark.parametrize(
    ("registered", "checksum"),
    [("", "none is registered"), ("adler32:abcd", "adler32 is unknown here")],
)
def test_checksums_of_another_kind_stop_nobody(zone: Zone, registered: str, checksum: str) -> None:
    zone.objects[f"{zone.home()}/big"][0].checksum = registered
    assert details(got(zone)) == (3, 1, checksum)


def test_a_token_over_tls(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    names = authority.issue("zone", hosts=["127.0.0.1"])
    creds = tmp_path / "creds"
    creds.mkdir()
    (creds / "irods.use").write_text('{"access_token": "tulip"}')
    monkeypatch.setenv("_CONDOR_CREDS", str(creds))
    with Zone(tmp_path / "vault", tls=names, pam={"ann": "tulip"}) as zone:
        zone.put(f"{zone.home()}/big", DATA)
        log_in(zone, folder, irods_user_name="ann", irods_authentication_scheme="pam_password",
               irods_ssl_ca_certificate_file=str(authority.file), **TLS)  # fmt: skip
        (folder / ".irodsA").unlink()
        assert got(zone)["TransferSuccess"]
        (creds / "irods.use").write_text("rose")
        assert "does not accept the password of ann" in why(got(zone))
        other = Authority(tmp_path, "other")
        log_in(zone, folder, **TLS, irods_ssl_ca_certificate_file=str(other.file))
        assert "the server's certificate is not trusted" in why(got(zone))


def many(zone: Zone, folder: Path, count: int) -> subprocess.CompletedProcess[str]:
    """Run the program itself for so many small files."""
    for n in range(count):
        zone.put(f"{zone.home()}/{n}", b"%d" % n)
    ads = (f'[ LocalFileName = "{folder}/{n}"; Url = "irods://{zone.home()}/{n}" ]\n'
           for n in range(count))  # fmt: skip
    (folder / "in").write_text("".join(ads))
    words = [sys.executable, "-I", plugin.__file__, "-infile", "in", "-outfile", "out"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_many_small_files_in_one_call(zone: Zone, folder: Path, count: int) -> None:
    done = many(zone, folder, count)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert all((folder / str(n)).read_bytes() == b"%d" % n for n in range(count))
    assert (folder / "out").read_text().count("TransferSuccess = true") == count
    calls = Counter(query=count, open=count, seek=count, read=count, close=count)
    assert zone.calls - Counter(login=2 * 17) == calls  # sessions are used again


def test_no_more_files_are_begun_after_one_that_failed(zone: Zone, folder: Path) -> None:
    zone.denied = {f"{zone.home()}/0"}
    assert many(zone, folder, 50).returncode == 1
    (line,) = (folder / "out").read_text().splitlines()
    assert "rods has no permission there" in line


def test_pegasus_transfer_without_icommands(zone: Zone, tmp_path: Path) -> None:
    (tmp_path / "job/.irodsA").unlink()  # so that it logs in itself
    account = json.loads(Path("irods_environment.json").read_text())
    Path("irods_environment.json").unlink()
    environment = tmp_path / "pegasus.json"
    environment.write_text(json.dumps({**account, "irods_password": "secret"}, indent=1))
    environment.chmod(0o600)
    home, here = f"irods://{zone.home()}", f"file://{tmp_path}"
    moves = [
        Transfer("big", (SiteUrl("store", f"{home}/big"),), (SiteUrl("local", f"{here}/got"),)),
        Transfer("new", (SiteUrl("local", f"{here}/got"),), (SiteUrl("store", f"{home}/a/new"),)),
    ]
    for move in moves:
        done = subprocess.run(
            [sys.executable, transfer_tool(), "--max-attempts", "1"], input=dumps([move]),
            env={"PATH": f"{TOOLS}:/usr/bin:/bin", "ADON_PYTHON": sys.executable, "HOME": "/",
                 "IRODS_ENVIRONMENT_FILE": str(environment)},
            text=True, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "got").read_bytes() == DATA == zone.data(f"{zone.home()}/a/new")
    done = subprocess.run(
        [str(TOOLS / "iget"), f"{zone.home()}/none", "none"],
        env={"PATH": "/usr/bin:/bin", "ADON_PYTHON": sys.executable, "HOME": "/",
             "IRODS_ENVIRONMENT_FILE": str(environment)},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"iget: {zone.home()}/none: there is no such file in the zone\n"
