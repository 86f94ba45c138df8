"""Workflows whose input lies in an iRODS zone and behind https, moved by HTCondor's plug-ins: each
transfer has its path from where the data lies, and the path is given back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from cryptography import x509
from file_server import FileServer
from http_load import broker_process
from irods.password_obfuscation import encode
from network_world import star
from pegasus_world import User, copy_pegasus, make_pegasus_case, pack_workers
from planner_world import MAPPING, RESULT, SITES
from waiting import until

from adon.cli.main import main
from adon.machine.packages import ensure
from examples.testbed.irods_zone import Zone
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from network_provisioner.base.model import ENDED, Transit
from network_provisioner.client.broker import BrokerClient

pytestmark = pytest.mark.component

# However small: every transfer is worth a path here.
TEMPLATE = {
    "qspec": {"min_throughput": "1 Mb/s"}, "rspec": {"max_throughput": "1 Gb/s"}, "break_even": 0,
}  # fmt: skip
READS, REFERENCE = b"reads" * 100_000, b"reference" * 10_000
LONG_S = 600.0
UID = 4711  # by which the password is scrambled


@dataclass(frozen=True, slots=True)
class World:
    """What everybody has: an access point, two sites, a zone at ``store``, a web server at
    ``web``."""

    pool: Pool
    zone: Zone
    urls: tuple[str, str]
    broker: BrokerClient

    def login(self, folder: Path) -> list[str]:
        """Files for a job that logs in to the zone."""
        settings = {
            "irods_host": self.zone.host, "irods_port": self.zone.port,
            "irods_user_name": "rods", "irods_zone_name": self.zone.name,
            "irods_authentication_uid": UID,
        }  # fmt: skip
        (folder / "irods_environment.json").write_text(json.dumps(settings))
        (folder / ".irodsA").write_text(encode("secret", uid=UID))
        return [str(folder / name) for name in ("irods_environment.json", ".irodsA")]

    def fetched(self, jobs: int, before: Collection[str] = ()) -> list[Transit]:
        """The paths of what slots fetched, but for those ``before``, once all are given back with
        what came."""

        def all_ended() -> list[Transit]:
            paths = [t for t in self.broker.list() if ":in@" in t.id and t.id not in before]
            ended = [t for t in paths if t.state in ENDED and t.usage.bytes]
            return ended if len(ended) == 2 * jobs == len(paths) else []

        return until(all_ended, "what came by URL")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    authority = Authority(folder)
    trusted = _hashed(Path(authority.file))
    certificate = authority.issue("web", hosts=["127.0.0.1"])
    with Zone(folder / "vault") as zone, FileServer({"/ref.fa": REFERENCE}, certificate) as web:
        zone.put(f"{zone.home()}/reads.fq", READS)
        network = star(*SITES, "web")
        of_site = {"store": f"irods://127.0.0.1:{zone.port}/", "web": f"{web.url}/"}
        for node in network["nodes"]:
            if url := of_site.get(node["name"]):
                node["urls"] = [url]
        config = {
            "topology": network, "controller": {"driver": "simulated"},
            "templates": {"default": TEMPLATE},
        }  # fmt: skip
        with broker_process(folder, config) as url:
            place_of = 'LOCAL_CONFIG_DIR = {}\n{}_ENVIRONMENT = "{}={}"\n'.format
            sites = {}
            for site in ("local", "mu", "tacc"):
                place = folder / site / "config.d"
                place.mkdir(parents=True)
                how = [] if site == "local" else ["--execute", "--irods"]
                words = ["--config", str(folder / "adon.yml"), "--config-dir", str(place), "--yes"]
                assert main(["install", "condor", "--site", site, *how, *words]) == 0
                if site != "local":
                    trusting = place_of(place, "STARTD", "X509_CERT_DIR", trusted)
                    sites[site] = SiteSpec(1, settings=trusting)
            for place in (folder, *folder.parents[:2]):
                place.chmod(0o755)
            condor = ensure("condor", progress=print)
            # The hook trusts whom the machine trusts.
            own = place_of(folder / "local/config.d", "SCHEDD", "SSL_CERT_DIR", trusted)
            with Pool(tmp_path_factory.mktemp("pool"), condor, sites, hub_settings=own) as pool:
                urls = f"irods://127.0.0.1:{zone.port}{zone.home()}/reads.fq", f"{web.url}/ref.fa"
                yield World(pool, zone, urls, BrokerClient(url, 30.0))


def _hashed(authority: Path) -> Path:
    """A folder of trusted authorities as OpenSSL looks into it: by the hash of their names."""
    certificate = x509.load_pem_x509_certificate(authority.read_bytes())
    name = hashlib.sha1(certificate.subject.public_bytes()[2:]).digest()[3::-1].hex()
    folder = authority.with_name("trusted")
    folder.mkdir()
    (folder / f"{name}.0").write_bytes(authority.read_bytes())
    return folder


def test_a_dag_whose_input_lies_elsewhere(world: World, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    inputs = ", ".join([*world.login(tmp_path), *world.urls])
    (tmp_path / "j.sub").write_text(
        "executable = /bin/sh\ntransfer_executable = false\nshould_transfer_files = YES\n"
        "arguments = \"-c 'cat reads.fq ref.fa | cksum'\"\noutput = out.$(node)\nlog = j.log\n"
        f'transfer_input_files = {inputs}\nrequirements = PegasusSite == "$(at)"\nqueue\n'
    )
    (tmp_path / "w.dag").write_text(
        'JOB a j.sub\nVARS a node="a" at="mu"\nJOB b j.sub\nVARS b node="b" at="tacc"\n'
        "PARENT a CHILD b\n"
    )
    world.pool.run(["condor_submit_dag", "-no_submit", "w.dag"], cwd=tmp_path)
    world.pool.run(["condor_submit", "w.dag.condor.sub"], cwd=tmp_path)
    world.pool.run(["condor_wait", "w.dag.dagman.log"], cwd=tmp_path, timeout_s=LONG_S)
    assert (tmp_path / "out.a").read_text() == (tmp_path / "out.b").read_text()
    assert (tmp_path / "out.b").read_text().split()[1] == str(len(READS) + len(REFERENCE))
    paths = world.fetched(2)
    assert {(t.request.job, t.request.src, t.request.dst) for t in paths} == {
        (job, src, dst) for job, dst in (("a", "mu"), ("b", "tacc")) for src in ("store", "web")
    }
    for path in paths:
        size = len(READS if path.request.src == "store" else REFERENCE)
        assert (path.usage.bytes, path.usage.outcome) == (size, "success")
        assert path.grant.path == [path.request.src, "s1", path.request.dst]
        assert path.request.size_bytes in (size, None)  # a server may be too slow to tell


@pytest.mark.long
@pytest.mark.pegasus
@pytest.mark.timeout(1800)
def test_a_workflow_that_pegasus_planned(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = copy_pegasus(tmp_path_factory.mktemp("opt") / "pegasus")
    pack_workers(home)
    user = User(world.pool, home)
    case = make_pegasus_case(tmp_path_factory.mktemp("wf"), home)
    (case.root / "pegasus.properties").write_text("pegasus.data.configuration = condorio\n")
    inputs = ",".join([*world.login(case.root), *world.urls])

    def profiles(document: Any) -> None:
        for job in document["jobs"]:
            selector = {"execution.site": MAPPING[job["id"]]}
            job["profiles"] = {"selector": selector, "condor": {"transfer_input_files": inputs}}

    case.change("workflow", profiles)
    before = {t.id for t in world.broker.list()}
    sites = ["--sites", "mu,tacc", "--output-sites", "local", "--dir", "submit", "workflow.yml"]
    out = user.types(["pegasus-plan", *sites], case.root)
    match = re.search(r"^pegasus-run\s+(\S+)", out, re.MULTILINE)
    assert match, out
    user.types(["pegasus-run", match[1]], case.root)
    (dag,) = Path(match[1]).glob("*.dag")
    log = dag.with_name(f"{dag.name}.dagman.out")
    until(lambda: log.exists() and "EXITING WITH STATUS" in log.read_text(), "its end", LONG_S)
    assert "EXITING WITH STATUS 0" in log.read_text()
    assert (case.storage("local") / "result.txt").read_text() == RESULT
    paths = world.fetched(len(MAPPING), before)
    assert {(t.request.job.rpartition("_")[2], t.request.src, t.request.dst) for t in paths} == {
        (job, src, site) for job, site in MAPPING.items() for src in ("store", "web")
    }
    assert all(t.grant.path and t.usage.outcome == "success" for t in paths)
    assert {t.usage.bytes for t in paths} == {len(READS), len(REFERENCE)}
    assert {t.request.application for t in paths} == {"mini"}
