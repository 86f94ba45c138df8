"""Files of ``irods://`` URLs in a real pool, moved by the plug-in as `adon install condor` puts it
there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from irods.password_obfuscation import encode
from waiting import until

from adon.cli.install_execute import PLUGIN
from adon.cli.main import main
from adon.machine.packages import ensure
from examples.testbed.irods_zone import Zone
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec

pytestmark = pytest.mark.component

LONG_S = 300.0
DATA = bytes(range(256)) * 160_000  # 41 MB, for three streams and more
UID = 4711  # by which the password is scrambled
# A hook of HTCondor's on the access point, that says how many streams.
HOOK = "#!/bin/sh\ncat > /dev/null\necho AdonStreams = 2\n"


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zone]:
    with Zone(tmp_path_factory.mktemp("zone") / "vault") as zone:
        zone.put(f"{zone.home()}/reads.fq", DATA)
        yield zone


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("etc") / PLUGIN


@pytest.fixture(scope="module")
def pool(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    place, hook = plugin.with_name("config.d"), plugin.with_name("hook")
    place.mkdir()
    hook.write_text(HOOK)
    for path in (hook, place, *place.parents[:2]):
        path.chmod(0o755)
    words = ["--execute", "--irods", "--site", "mu", "--config-dir", str(place), "--yes"]
    assert main(["install", "condor", *words]) == 0
    settings = f"LOCAL_CONFIG_DIR = {place}\n"
    hub = f"SHADOW_DEFAULT_JOB_HOOK_KEYWORD = TEST\nTEST_HOOK_SHADOW_PREPARE_JOB = {hook}\n"
    condor = ensure("condor", progress=print)
    sites = {"mu": SiteSpec(1, settings=settings)}
    with Pool(tmp_path_factory.mktemp("pool"), condor, sites, hub_settings=hub) as pool:
        yield pool
    words = ["--execute", "--undo", "--config-dir", str(place), "--yes"]
    assert main(["install", "condor", *words]) == 0
    assert not [*place.iterdir()]
    assert not plugin.exists()


@pytest.fixture
def job(zone: Zone, tmp_path: Path) -> Path:
    """A folder to submit from, with what a job needs to log in."""
    tmp_path.chmod(0o777)
    settings = {
        "irods_host": zone.host, "irods_port": zone.port, "irods_user_name": "rods",
        "irods_zone_name": zone.name, "irods_authentication_uid": UID,
    }  # fmt: skip
    (tmp_path / "irods_environment.json").write_text(json.dumps(settings))
    (tmp_path / ".irodsA").write_text(encode("secret", uid=UID))
    return tmp_path


def submit(pool: Pool, folder: Path, lines: Mapping[str, str], *urls: str) -> str:
    inputs = ["irods_environment.json", ".irodsA", *urls]
    usual = {
        "executable": "/bin/cp", "transfer_executable": "false", "should_transfer_files": "YES",
        "log": "j.log", "transfer_input_files": ", ".join(inputs), "request_disk": "200MB",
    }  # fmt: skip
    text = "".join(f"{key} = {value}\n" for key, value in {**usual, **lines}.items())
    (folder / "j.sub").write_text(f"{text}queue\n")
    return pool.run(["condor_submit", "-terse", "j.sub"], cwd=folder).split(".")[0]


def told(pool: Pool, cluster: str, way: str) -> Mapping[str, object]:
    """The plug-in's result as it stands in HTCondor's history of transfers."""
    words = [
        "condor_history",
        "-transfer-history",
        "-json",
        "-constraint",
        f"ClusterId == {cluster}",
    ]

    def results() -> list[object]:
        ads = json.loads(pool.run(words) or "[]")
        return [result for ad in ads for result in ad.get(f"{way}PluginResultList", [])]

    (result,) = until(results, f"history of what was {way.lower()}")
    assert isinstance(result, dict)
    return result


def test_input_and_output(pool: Pool, zone: Zone, job: Path) -> None:
    lines = {
        "arguments": "reads.fq copy.fq", "transfer_output_files": "copy.fq",
        "output_destination": f"irods://{zone.home()}/results",
    }  # fmt: skip
    cluster = submit(pool, job, lines, f"irods://{zone.home()}/reads.fq")
    pool.run(["condor_wait", "j.log"], cwd=job, timeout_s=LONG_S)
    assert zone.data(f"{zone.home()}/results/copy.fq") == DATA
    for way in ("Input", "Output"):
        result = told(pool, cluster, way)
        assert (result["TransferSuccess"], result["TransferTotalBytes"]) == (True, len(DATA))
        assert result["DeveloperData"] == {
            "TransferTries": 1, "TransferStreams": 2, "TransferChecksum": "sha2",
        }  # fmt: skip


def test_a_job_with_a_plug_in_of_its_own_is_held_with_a_sentence(
    pool: Pool, plugin: Path, zone: Zone, job: Path
) -> None:
    lines = {"arguments": "a b", "transfer_plugins": f"irods={plugin}"}
    cluster = submit(pool, job, lines, f"irods://{zone.home()}/reed.fq")
    words = ["condor_q", cluster, "-af", "HoldReasonCode", "HoldReason"]
    why = until(lambda: pool.run(words) if "13" in pool.run(words) else "", "the job to be held")
    pool.run(["condor_rm", cluster])
    assert f"{zone.home()}/reed.fq: there is no such file in the zone" in why
