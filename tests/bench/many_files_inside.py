"""Runs inside a box for the bench P10: many small files and one large one over the same path.

    python -m tests.bench.many_files_inside OPENVSWITCH GRIDFTP FOLDER

Each list is a job of a planned workflow. PRE asks the broker of the switches for its path and tunes
it; then pegasus-transfer is run as the job's submit file says, and beside it as it said before PRE.
Writes a line of JSON for each way: scheme, way, files, bytes of one, seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import Pegasus

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from irods.password_obfuscation import encode
from planned_world import File, Planned

from condor_plugins.irods import plugin
from examples.soykb.scenario import LAYOUT
from examples.testbed import netns
from examples.testbed.gridftp import GridFtp, endpoints
from examples.testbed.layout import HUB, OPENFLOW_LISTEN
from examples.testbed.network import Network
from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.broker import Broker
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects
from network_provisioner.client.patience import Budget
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.stores.sqlite import SqliteStore
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.topology.data import topology_from_dict
from pegasus_hooks.prepost import prejob, tuning
from tests.bench import timed

PEGASUS_TRANSFER = Path(Pegasus.__path__[0]) / "cli" / "pegasus-transfer.py"
ADON, PEGASUS = "ADON", "pegasus-transfer as it comes"
CLIENT = "python-irodsclient's get()"
FAST, PLAIN = "globus-url-copy -pp -cc 4 -fast", "globus-url-copy"
SRC = LAYOUT.host("tacc")
PORT, RTT_S = 8080, 0.053
FILES, SMALL_BYTES = 500, 10**6
# Of ways that take a second for a file.
FEW = {("gsiftp", PLAIN): 50, ("http", PEGASUS): 100, ("irods", CLIENT): 50}
ZONE = """
import sys
from pathlib import Path
from examples.testbed.irods_zone import Zone
with Zone(Path(sys.argv[1]) / "vault", host=sys.argv[2]) as zone:
    for path in map(Path, sys.argv[3:]):
        zone.put(f"{zone.home()}/{path.name}", path.read_bytes())
    print(zone.port, flush=True)
    sys.stdin.read()
"""
GET = """
import os, sys
from pathlib import Path
from condor_plugins.irods import account
names = [line.split() for line in open(sys.argv[1])]
with account.session(account.parsed(names[0][0]), os.environ, Path.cwd()) as zone:
    for url, target in names:
        zone.data_objects.get(account.parsed(url).path, target)
"""


class Site:
    """The testbed's network with a broker on it, data nodes, and a web server at ``SRC``."""

    def __init__(self, switches: Path, programs: Path, folder: Path, undo: ExitStack) -> None:
        self.folder = folder
        undo.enter_context(Network(LAYOUT, switches, folder))
        topology = topology_from_dict(LAYOUT.topology())
        controller = OpenFlowController(topology, OPENFLOW_LISTEN)
        store = SqliteStore(folder / "state.sqlite")
        self.broker = Broker(topology, templates_from_dict({}), controller, store)
        self.broker.start(60.0)
        undo.callback(self.broker.stop)
        self.gridftp = GridFtp(endpoints(LAYOUT), folder, programs)
        self.gridftp.start()
        undo.callback(self.gridftp.stop)
        words = [*netns.execute(SRC.netns), sys.executable, "-m", "http.server", str(PORT)]
        words += ["--bind", SRC.address, "--directory", "/"]
        nowhere = subprocess.DEVNULL
        server = subprocess.Popen(words, stdout=nowhere, stderr=nowhere)
        undo.callback(server.wait)
        undo.callback(server.kill)
        self.target = folder / "target"
        (folder / "password").write_text(encode("secret", uid=os.getuid()))

    @contextmanager
    def zone(self, names: Sequence[str]) -> Iterator[str]:
        """The URL of a collection at ``SRC`` with these files."""
        words = [*netns.execute(SRC.netns), sys.executable, "-c", ZONE, str(self.folder)]
        words += [SRC.address, *(str(self.folder / name) for name in names)]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as zone:
            assert zone.stdin and zone.stdout
            yield f"irods://rods@{SRC.address}:{zone.stdout.readline().strip()}/tempZone/home/rods"
            zone.stdin.close()

    def files(self, scheme: str, names: Sequence[str], zone: str = "") -> list[File]:
        """The entries of a list: between two servers, or from one to a file of the submit host."""
        source, target = zone or f"http://{SRC.address}:{PORT}{self.folder}", "file://"
        if scheme == "gsiftp":
            source, target = self.gridftp.url(SRC.name), self.gridftp.url("mu")
            source += str(self.folder)
        target += str(self.target)
        dst = "mu" if scheme == "gsiftp" else HUB
        sizes = [(self.folder / name).stat().st_size for name in names]
        return [
            File(name, SRC.name, f"{source}/{name}", dst, f"{target}/{name}", size)
            for name, size in zip(names, sizes, strict=True)
        ]

    @contextmanager
    def job(self, name: str, files: Sequence[File]) -> Iterator[tuple[Path, float]]:
        """The submit file of a job as PRE leaves it, with the path that it asked for, whose rate is
        in b/s."""
        plan = Planned(self.folder / name)
        submit_file = plan.transfer_job(name, files)
        effects = Effects(self.broker, Budget(60.0))
        prejob.run(PlannedFiles(plan.where, name), 0, HookConfig("http://127.0.0.1:1"), effects)
        (pair,) = job_files.read_json(plan.folder / f"{name}.adon.json")["pairs"]
        assert pair["layer"] == "l2", pair
        yield submit_file, self.broker.get(pair["id"]).grant.granted_bps
        self.broker.release(pair["id"], 0, 0.0, "success")

    def measure(self, scheme: str, way: str, files: Sequence[File], words: list[str]) -> None:
        """Run a command, of which all files have to arrive; with our variables for pegasus-transfer
        in front of it, as those of env(1)."""
        shutil.rmtree(self.target, ignore_errors=True)
        if scheme == "irods":
            self.target.mkdir()
        env = {**os.environ, **self.gridftp.transfer_env()}
        call = ["env", *words]
        done, seconds = timed(
            lambda: subprocess.run(call, env=env, capture_output=True, text=True, check=False)
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        sizes = {file.size for file in files}
        assert {(self.target / file.lfn).stat().st_size for file in files} == sizes
        row = {"scheme": scheme, "way": way, "files": len(files), "bytes": max(filter(None, sizes))}
        print(json.dumps({**row, "seconds": seconds}), flush=True)

    def fetch(self, way: str, files: Sequence[File], rate_bps: float) -> list[str]:
        """The call of HTCondor's plug-in, or of iRODS's client, for files of a zone."""
        env = [f"IRODS_AUTHENTICATION_FILE={self.folder / 'password'}"]
        targets = [(file.src_url, self.target / file.lfn) for file in files]
        wanted, ad = self.folder / "wanted", self.folder / "job.ad"
        if way == CLIENT:
            wanted.write_text("".join(f"{url} {target}\n" for url, target in targets))
            return [*env, sys.executable, "-c", GET, str(wanted)]
        ads = [f'[ Url = "{url}"; LocalFileName = "{target}" ]' for url, target in targets]
        wanted.write_text("".join(ads))
        ad.write_text(f"AdonRateBps = {rate_bps}\nAdonRttSeconds = {RTT_S}\n")
        words = ["-infile", str(wanted), "-outfile", str(self.folder / "results")]
        return [*env, f"_CONDOR_JOB_AD={ad}", sys.executable, plugin.__file__, *words]


def transfer(submit_text: str, listing: Path, tools: str) -> list[str]:
    """The call of pegasus-transfer in a submit file, with the programs of a folder on its PATH."""
    line = next(x for x in submit_text.splitlines() if x.startswith("environment"))
    given = dict(w.split("=", 1) for w in line.partition('"')[2][:-1].split(" ") if "=" in w)
    words = [f"{name}={given[name]}" for name in given if name.startswith(("ADON_", "PYTHON"))]
    words.append("PATH=" + given["PATH"].replace("/opt/site/bin", tools))
    arguments = job_files.command(submit_text, "arguments").split()
    threads = arguments[arguments.index("--threads") + 1]
    return [*words, sys.executable, str(PEGASUS_TRANSFER), "-f", str(listing), "--threads", threads]


def listed(folder: Path, files: Sequence[File]) -> list[str]:
    """The arguments with which globus-url-copy moves files."""
    where = folder / "urls"
    where.write_text("".join(f"{file.src_url} {file.dst_url}\n" for file in files))
    return ["-cd", "-f", str(where)]


def main(switches: Path, programs: Path, folder: Path) -> None:
    """All ways, one after the other."""
    small = [f"small{n}" for n in range(FILES)]
    for name, size in [("large", FILES * SMALL_BYTES), *((name, SMALL_BYTES) for name in small)]:
        (folder / name).touch()
        os.truncate(folder / name, size)
    with ExitStack() as undo:
        site = Site(switches, programs, folder, undo)
        tools = site.gridftp.transfer_env()["PATH"]
        for scheme in ("gsiftp", "http"):
            for kind, names in (("large", ["large"]), ("small", small)):
                files = site.files(scheme, names)
                few = files[: FEW.get((scheme, PEGASUS))]
                job = f"stage_in_{scheme}_{kind}"
                with site.job(job, files) as (submit_file, _):
                    made, listing = submit_file.read_text(), submit_file.with_suffix(".in")
                    site.measure(scheme, ADON, files, transfer(made, listing, tools))
                    shorter = Planned(folder / f"{job}_few").transfer_job(job, few)
                    words = transfer(
                        tuning.original_submit_file(made), shorter.with_suffix(".in"), tools
                    )
                    site.measure(scheme, PEGASUS, few, words)
                    if scheme == "gsiftp" and kind == "small":
                        for way in (FAST, PLAIN):
                            some = files[: FEW.get((scheme, way))]
                            words = [f"PATH={tools}", *way.split(), *listed(folder, some)]
                            site.measure(scheme, way, some, words)
        with site.zone(["large", *small]) as zone:
            for kind, names in (("large", ["large"]), ("small", small)):
                files = site.files("irods", names, zone)
                with site.job(f"stage_in_irods_{kind}", files) as (_, rate_bps):
                    for way in (ADON, CLIENT):
                        some = files[: FEW.get(("irods", way)) if kind == "small" else None]
                        site.measure("irods", way, some, site.fetch(way, some, rate_bps))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
