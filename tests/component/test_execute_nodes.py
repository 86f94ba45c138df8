"""Execute machines of a real pool that report about themselves: `adon install condor --execute`,
Rank and Requirements on what they tell, and files that their jobs share."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from broker_service import BrokerService
from file_server import FileServer
from network_world import star
from waiting import until

from adon.cli.main import main
from adon.machine.packages import ensure
from examples.testbed import procs
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from network_provisioner.base.model import ENDED, Transit

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[2]
LONG_S = 300.0  # nothing here takes nearly as long
SHARED, OWN = 30 * 2**20, 1000  # bytes
# Else a job is given the slot of the one before, as soon as that has ended, whatever its Rank.
ONE_JOB = "CLAIM_WORKLIFE = 0\n"
# One slot that is carved up, since data slots are.
CARVED = """
NUM_CPUS = 4
MEMORY = 2048
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = True
NUM_SLOTS_TYPE_1 = 1
"""
# The default also has cores and memory in it, and they go before a job's Rank.
HUB = """
GUIDANCE_KEEP_CALM_AND = False
NEGOTIATOR_PRE_JOB_RANK = (10000000 * My.Rank) + (1000000 * (RemoteOwner =?= UNDEFINED))
"""


def waiting(io_wait: float) -> SiteSpec:
    """A machine of iplant whose disk is as busy as we say."""
    site = {"PegasusSite": "iplant", "AdonSite": "iplant"}
    attributes = {
        "AdonIoWaitFraction": io_wait,
        "AdonIoWaitSustainedFraction": io_wait,
        "AdonMetricsAt": time.time(),
    }
    lines = "".join(f"{name} = {value}\n" for name, value in attributes.items())
    more = f"STARTD_ATTRS = $(STARTD_ATTRS) {' '.join(attributes)}\n"
    return SiteSpec(2, attributes=site, settings=f"STARTD_CRON_JOBLIST =\n{lines}{more}{ONE_JOB}")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerService]:
    network = star("mu", "tacc", "iplant", "local")
    for link in network["links"]:
        link["capacity"] = {"mu": "200 Mb/s", "tacc": "600 Mb/s"}.get(link["a"], "1 Gb/s")
    with BrokerService(tmp_path_factory.mktemp("broker"), network) as service:
        yield service


def folder_of(place: Path, host: str) -> Path:
    return place / host / "config.d"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each machine has its config.d."""
    place = tmp_path_factory.mktemp("etc")
    for host in ("mu", "tacc", "local"):
        folder_of(place, host).mkdir(parents=True)
        for folder in (folder_of(place, host), place / host, place, place.parent):
            folder.chmod(0o755)
    return place


@pytest.fixture(scope="module")
def pool(
    service: BrokerService, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    sites: dict[str, SiteSpec] = {"quiet": waiting(0.1), "busy": waiting(0.6)}
    for host in ("local", "mu", "tacc"):
        folder = folder_of(place, host)
        words = ["--config-dir", str(folder), "--site", host, "--broker", service.url, "--yes"]
        if host != "local":
            words += ["--execute", "--interface", "lo"]
            (folder / "zz-often").write_text("STARTD_CRON_ADON_HOST_PERIOD = 2s\n")
            start = "START = $(START) && (AdonDataSeconds ?: 0) < 300\n" * (host == "mu")
            own = f"STARTD_CRON_JOBLIST =\nLOCAL_CONFIG_DIR = {folder}\n{CARVED}{ONE_JOB}{start}"
            sites[host] = SiteSpec(1, settings=own)
        assert main(["install", "condor", *words]) == 0
    hub = f"LOCAL_CONFIG_DIR = {folder_of(place, 'local')}\n{HUB}"
    run_dir = tmp_path_factory.mktemp("pool")
    with Pool(run_dir, ensure("condor", progress=print), sites, hub_settings=hub) as pool:
        yield pool


def attribute(pool: Pool, host: str, name: str) -> str:
    """Of a machine's first slot; "undefined" where it has none of it."""
    which = f'Machine == "{host}.adon.test" && SlotID == 1 && IsDataSlot =!= true'
    return pool.run(["condor_status", "-constraint", which, "-af", name]).split("\n")[0]


def until_told(pool: Pool, host: str, name: str, present: bool = True) -> None:
    what = f"{name} of {host} to {'come' if present else 'go'}"
    until(lambda: (attribute(pool, host, name) not in ("", "undefined")) is present, what)


def until_free(pool: Pool) -> None:
    """A slot whose job has ended is held a little longer, and one of the site's jobs until then."""
    held = ["condor_status", "-constraint", 'State != "Unclaimed"', "-af", "Name"]
    until(lambda: not pool.run(held).strip(), "all slots to be free")


def submit(pool: Pool, folder: Path, lines: Mapping[str, str], count: int = 1) -> str:
    usual = {
        "executable": "/bin/true", "transfer_executable": "false", "should_transfer_files": "YES",
        "request_memory": "10", "request_disk": "1MB",
        "log": "j.log",
    }  # fmt: skip
    text = "".join(f"{key} = {value}\n" for key, value in {**usual, **lines}.items())
    folder.chmod(0o777)
    (folder / "j.sub").write_text(f"{text}queue {count}\n")
    return pool.run(["condor_submit", "-terse", "j.sub"], cwd=folder).split(".")[0]


def ran(pool: Pool, folder: Path, lines: Mapping[str, str], count: int = 1) -> str:
    """The cluster of jobs that have ended."""
    cluster = submit(pool, folder, lines, count)
    pool.run(["condor_wait", "j.log"], cwd=folder, timeout_s=LONG_S)
    return cluster


def hosts(pool: Pool, cluster: str) -> set[str]:
    """Where its jobs ran."""
    names = pool.run(["condor_history", cluster, "-af", "LastRemoteHost"]).split()
    return {name.rpartition("@")[2].partition(".")[0] for name in names}


def test_slots_tell_their_site_their_host_and_what_the_network_has_left(pool: Pool) -> None:
    names = ("AdonIoWaitFraction", "AdonIoWaitSustainedFraction", "AdonDiskWriteBps",
             "AdonNetRxBps", "AdonAvailL2From_local_Bps", "AdonAvailL2To_iplant_Bps")  # fmt: skip
    for host in ("mu", "tacc"):
        for name in names:
            until_told(pool, host, name)
        assert attribute(pool, host, "AdonSite") == host
    assert 0 <= float(attribute(pool, "mu", "AdonIoWaitFraction")) <= 1

    def left() -> list[float]:
        return [float(attribute(pool, host, names[-1])) for host in ("mu", "tacc")]

    # 10 % stay with best-effort traffic.
    until(lambda: left() == [180e6, 540e6], "the network to be free")
    assert attribute(pool, "mu", "AdonAvailL3From_local_Bps") == "undefined"
    assert attribute(pool, "mu", "AdonAvailL2From_mu_Bps") == "undefined"


def test_rank_goes_where_bandwidth_is_left_and_requirements_keep_away(
    pool: Pool, tmp_path: Path
) -> None:
    for host in ("mu", "tacc"):
        until_told(pool, host, "AdonAvailL2From_local_Bps")
    most = 'ifThenElse(AdonSite == "local", 1e12, AdonAvailL2From_local_Bps ?: 0)'
    here = 'ifThenElse(AdonSite == "mu", 1e12, AdonAvailL2From_mu_Bps ?: 0)'
    for number, (lines, ran_at) in enumerate((
        ({"rank": most}, {"tacc"}),
        ({"rank": f"-({most})", "requirements": "AdonAvailL2From_local_Bps > 0"}, {"mu"}),
        ({"rank": here}, {"mu"}),  # where the data are nothing has to cross the network
        ({"rank": f"-({most})", "requirements": "AdonAvailL2From_local_Bps > 3e8"}, {"tacc"}),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        assert hosts(pool, ran(pool, folder, lines)) == ran_at, lines


def test_rank_and_start_go_by_when_a_jobs_data_would_be_there(pool: Pool, tmp_path: Path) -> None:
    for host in ("mu", "tacc"):
        until_told(pool, host, "AdonDataSeconds")
    (tmp_path / "input").write_bytes(bytes(3 * 2**20))
    (tmp_path / "input").chmod(0o644)
    # 180 Mb/s to mu from anywhere, 540 Mb/s to tacc. Who has the access point send its input says
    # nothing; mu starts no job whose data would take five minutes.
    sent = {"transfer_input_files": str(tmp_path / "input"), "rank": "-(AdonDataSeconds ?: 1e9)"}
    large = {"+AdonBytesAt_iplant": "10000000000", "rank": 'AdonSite == "mu"'}
    for name, lines in (("large", large), ("sent", sent)):
        until_free(pool)
        (tmp_path / name).mkdir()
        cluster = ran(pool, tmp_path / name, {**lines, "requirements": 'AdonSite != "iplant"'})
        assert hosts(pool, cluster) == {"tacc"}, name
    sizes = pool.run(["condor_history", cluster, "-af", "eval(AdonBytesAt_local)"])
    assert int(sizes) >= 3 * 2**20


def test_rank_and_requirements_go_by_io_wait(pool: Pool, tmp_path: Path) -> None:
    iplant = 'AdonSite == "iplant"'
    calm = "-(AdonIoWaitSustainedFraction ?: 0)"
    for number, (lines, ran_at) in enumerate((
        ({"rank": calm, "requirements": iplant}, {"quiet"}),
        ({"rank": f"-({calm})", "requirements": iplant}, {"busy"}),
        ({"rank": f"-({calm})",
          "requirements": f"{iplant} && (AdonIoWaitSustainedFraction ?: 0) < 0.5"}, {"quiet"}),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        assert hosts(pool, ran(pool, folder, lines)) == ran_at, lines


CATALOG = "pegasus: 5.0.4\nsites:\n- {name: iplant, arch: x86_64, os.type: linux}\n"


def test_site_selection_counts_no_cores_that_stand_still(pool: Pool, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    until_free(pool)
    (tmp_path / "sites.yml").write_text(CATALOG)
    adon = "import sys; from adon.cli.main import main; sys.exit(main())"
    words = ["site", "show", "--sites", str(tmp_path / "sites.yml"), "--pool", "--json"]
    shown = json.loads(pool.run([sys.executable, "-c", adon, *words], cwd=ROOT))
    n = shown["sites"]["iplant"]["n"]
    cores = int(attribute(pool, "busy", "DetectedCpus"))
    stalled = min(int(round(0.1 * cores + 0.6 * cores, 3)), 2)  # of four slots
    assert (n["value"], n["source"]) == (4 - stalled, "collector")
    assert stalled == 0 or n["note"] == f"of 4 slots, {stalled} wait for disks (I/O wait)"


# What jobs share is sent again once none of them is there any more.
TOGETHER = """#!/bin/sh
touch {0}/began.$$
until [ "$(ls {0} | grep -c '^began')" -ge 3 ]; do sleep 0.1; done
"""


def sharing(folder: Path, size: int) -> dict[str, str]:
    """Jobs at mu that share a file of so many bytes, and have one each. None ends before three have
    begun."""
    folder.chmod(0o777)
    (folder / "together").write_text(TOGETHER.format(folder))
    (folder / "together").chmod(0o755)
    for name, n_bytes in (("shared.dat", size), ("own.dat", OWN)):
        with (folder / name).open("wb") as file:
            file.truncate(n_bytes)
        (folder / name).chmod(0o644)
    return {
        "executable": str(folder / "together"),
        "transfer_common_input": "shared.dat", "transfer_input_files": "own.dat",
        "requirements": 'AdonSite == "mu"', "request_disk": f"{size // 2**20 + 100}MB",
    }  # fmt: skip


def inputs(service: BrokerService, cluster: str) -> dict[str, Transit]:
    transits = (t for t in service.client.list() if ":in:1" in t.id and f"-{cluster}." in t.id)
    return {t.id: t for t in transits}


def test_what_jobs_of_a_machine_share_has_one_path(
    pool: Pool, service: BrokerService, tmp_path: Path
) -> None:
    cluster = ran(pool, tmp_path, sharing(tmp_path, SHARED), 3)
    assert hosts(pool, cluster) == {"mu"}

    def transits() -> dict[str, Transit]:
        return inputs(service, cluster)

    until(lambda: len(transits()) == 4, "the inputs of three jobs, and of what they share")
    until(
        lambda: all(t.state in ENDED or not t.grant.path for t in transits().values()), "all back"
    )
    (name,) = (name for name in transits() if ".common" in name)
    until(lambda: transits()[name].usage.bytes, "how much was moved")
    shared = transits()[name]
    assert (shared.request.src, shared.request.dst) == ("local", "mu")
    assert (shared.request.size_bytes, shared.usage.bytes, shared.usage.outcome) == (
        SHARED,
        SHARED,
        "success",
    )
    assert shared.grant.path == ["local", "s1", "mu"]
    own = [t for other, t in transits().items() if other != name]
    assert [t.request.size_bytes for t in own] == [OWN] * 3


def test_what_jobs_of_a_machine_share_by_url_is_fetched_and_asked_for_once(
    pool: Pool, service: BrokerService, place: Path, tmp_path: Path
) -> None:
    hooks = place / "local/adon-transfers.json"
    before = hooks.read_text()
    with FileServer({"/data": b"x" * SHARED}) as web:
        hooks.write_text(json.dumps({**json.loads(before), "sources": {f"{web.url}/": "iplant"}}))
        try:
            lines = {**sharing(tmp_path, SHARED), "transfer_common_input": f"{web.url}/data"}
            cluster = ran(pool, tmp_path, lines, 3)
        finally:
            hooks.write_text(before)
    assert sorted(web.asked) == ["GET /data", "HEAD /data"]
    (name,) = (
        t.id for t in service.client.list() if f"-{cluster}." in t.id and t.request.src == "iplant"
    )
    until(lambda: service.client.get(name).state in ENDED, "the path to be given back")
    until(lambda: service.client.get(name).usage.bytes, "how much was moved")
    path = service.client.get(name)
    assert ".common" in name
    assert (path.request.dst, path.usage.outcome) == ("mu", "success")
    assert path.request.size_bytes in (SHARED, None)  # a server may be too slow to tell
    assert (path.usage.bytes, path.usage.seconds > 0) == (SHARED, True)


def test_common_files_that_broke_off_give_their_path_back(
    pool: Pool, service: BrokerService, tmp_path: Path
) -> None:
    cluster = submit(pool, tmp_path, sharing(tmp_path, 2**32))

    def shared() -> Transit | None:
        transits = inputs(service, cluster).items()
        return next((t for name, t in transits if ".common" in name and t.grant.path), None)

    until(shared, "the path of what is shared")
    killed = 0
    for process in procs.marked(pool.run_dir):
        with suppress(psutil.Error):  # some of a pool's processes live for a moment only
            if f"{cluster}.-1000" in process.cmdline():
                process.kill()
                killed += 1
    assert killed
    pool.run(["condor_rm", cluster])
    until(lambda: (path := shared()) and path.state in ENDED, "it to be back")
    path = shared()
    assert path is not None
    assert path.usage.outcome not in ("", "success")


def test_undone_the_slots_tell_no_more(pool: Pool, place: Path) -> None:
    folder = folder_of(place, "mu")
    assert (
        main(["install", "condor", "--execute", "--undo", "--config-dir", str(folder), "--yes"])
        == 0
    )
    assert [file.name for file in folder.iterdir()] == ["zz-often"]
    pool.run(["condor_reconfig", "-name", "mu.adon.test"])
    for name in ("AdonIoWaitFraction", "AdonAvailL2From_local_Bps", "AdonSite"):
        until_told(pool, "mu", name, present=False)
    assert attribute(pool, "tacc", "AdonSite") == "tacc"
