"""P5: what the hooks add to the makespan of a workflow of 1,013 jobs, on a real HTCondor pool.

The same plan runs three times at the same time, each on slots of its own: with the scripts that
``adon install pegasus`` makes as PRE and POST of every job, a broker and a watcher behind them; as
it is without ADON; and with a PRE that does nothing, which is what DAGMan itself adds. All have a
POST, as Pegasus gives every job one; its own check of a job, which takes longer than all of ours,
is a program here that does nothing.

Jobs sleep, and transfers sleep for as long as their path needs for them: so it is the latency that
counts, not what 2,000 jobs do to a small machine. The longer jobs run, the smaller is the share.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from statistics import fmean

from adon.machine import packages
from examples.testbed import dagman
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.workflows.report import timeline
from network_provisioner.client.broker import BrokerClient
from pegasus_hooks.planner import ExecutableJob
from pegasus_hooks.prepost import hookscripts
from tests.bench import Figure, Tell, bench
from tests.bench.bench_p5 import SITES, TEMPLATE, TRUE, broker, planned

COMPUTE_S = float(os.environ.get("ADON_P5_JOB_S", "20"))  # of a compute job, on average
TRANSFER_S = 5.0
WORKERS = 13  # slots of each of three sites
MOST_S = 3600.0
HOOKED, PLAIN, EMPTY = "hooks", "plain", "empty"  # the last: a PRE that does nothing
SUB = """\
executable = /bin/sleep
arguments = {seconds:.2f}
universe = {universe}
{where}\
should_transfer_files = NO
output = {base}.out
error = {base}.err
log = {log}
request_memory = 16
request_disk = 100
notification = NEVER
priority = {priority}
+pegasus_site = "{site}"
+pegasus_wf_xformation = "{program}"
+pegasus_job_class = {job_class}
queue
"""


@dataclass(frozen=True)
class Lane:
    """One of the workflows: ``name`` is also the ending of its sites' names."""

    name: str
    submit_dir: Path
    dag: Path
    jobs: Sequence[ExecutableJob]

    def site(self, site: str) -> str:
        """Its own part of a site."""
        return f"{site}-{self.name}"


@bench("P5")
def added_makespan(tell: Tell) -> Iterable[Figure]:
    """Three workflows at once, one with hooks."""
    condor = packages.ensure("condor", progress=tell)
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        lanes = [lane(folder / kind, kind) for kind in (PLAIN, EMPTY, HOOKED)]
        specs = {
            variant.site(site): SiteSpec(WORKERS, memory_mb=64)
            for variant in lanes
            for site in SITES
            if site != "local"
        }
        with broker(folder) as url, Pool(folder / "pool", condor, specs) as pool:
            scripts(lanes, url, folder)
            tell(f"3 x {len(lanes[0].jobs)} jobs, {COMPUTE_S:g} s each on average")
            clusters = [(variant, dagman.submit_dag(variant.dag, pool.run)) for variant in lanes]
            for variant, cluster in clusters:
                end = dagman.wait(variant.dag, cluster, MOST_S)
                if end.state != "success":
                    raise AssertionError(f"{variant.name}: {end}")
            live = BrokerClient(url).health()["live"]
            release_count = len(BrokerClient(url).list(state="released", limit=10_000))
        if live or not release_count:
            raise AssertionError(f"{live} transits left and {release_count} given back")
        took = {variant.name: makespan(variant) for variant in lanes}
        gaps = {variant.name: between(variant) for variant in lanes}
    plain, hooked = took[PLAIN], took[HOOKED]
    yield Figure(
        f"makespan added to {len(lanes[0].jobs)} jobs of {COMPUTE_S:g} s",
        100 * (hooked / plain - 1), "%", better="lower", goal=1.0,
    )  # fmt: skip
    peers = {"without": plain, "PRE that does nothing": took[EMPTY]}
    yield Figure("makespan with hooks", hooked, "s", better="lower", peers=peers)
    yield Figure(
        "from the end of a job's parents until it is submitted, mean",
        gaps[HOOKED], "s", better="lower",
        peers={"without hooks": gaps[PLAIN], "PRE that does nothing": gaps[EMPTY]},
    )  # fmt: skip


def lane(folder: Path, name: str) -> Lane:
    """A planned workflow whose jobs sleep."""
    folder.mkdir()
    submit_dir, jobs = planned(folder)
    (dag,) = submit_dir.glob("*.dag")
    made = Lane(name, submit_dir, dag, jobs)
    for job in jobs:
        (submit_dir / job.folder / f"{job.name}.sub").write_text(sleeping(made, job))
    return made


def sleeping(lane: Lane, job: ExecutableJob) -> str:
    """The submit file of a job that sleeps as long as the same job of the other workflow."""
    at_site = job.task is not None
    share = int.from_bytes(sha256(job.name.encode()).digest()[:4]) / 2**32
    usual_s = COMPUTE_S if at_site else TRANSFER_S if job.transfers else 0.1
    where = f'requirements = TARGET.PegasusSite == "{lane.site(job.site)}"\n' if at_site else ""
    return SUB.format(
        seconds=usual_s * (0.5 + share),
        universe="vanilla" if at_site else "local",
        where=where,
        base=lane.submit_dir / job.folder / job.name,
        log=next(lane.submit_dir.glob("*.dag")).with_suffix(".log"),
        priority=10 * (job.level + 2),
        site=job.site,
        program="pegasus::transfer" if job.transfers else "bench::sleep:1.0",
        job_class=1 if at_site else 2,
    )


def scripts(lanes: Iterable[Lane], url: str, folder: Path) -> None:
    """Put PRE and POST of every job into the DAGs, as the installed properties do."""
    config = folder / "hooks.json"
    config.write_text(
        json.dumps({"broker": url, "template": TEMPLATE, "watch": str(folder / "watch")})
    )
    commands = hookscripts.Commands(sys.executable, str(config), TRUE)
    files = {}
    for name, text in (
        (hookscripts.PRE_NAME, hookscripts.pre_script(commands)),
        (hookscripts.POST_NAME, hookscripts.exitcode_script(commands)),
    ):
        files[name] = folder / name
        files[name].write_text(text)
        files[name].chmod(0o755)
    for variant in lanes:
        lines = [line for line in variant.dag.read_text().splitlines() if "SCRIPT" not in line]
        for job in variant.jobs:
            output = f"./{job.folder}/{job.name}.out"
            if variant.name == HOOKED:
                pre, post = files[hookscripts.PRE_NAME], files[hookscripts.POST_NAME]
                lines.append(f"SCRIPT PRE {job.name} {pre} {hookscripts.PRE_ARGUMENTS}")
                check = f"{hookscripts.POST_ARGUMENTS} -M flow.cache.meta {output}"
                lines.append(f"SCRIPT POST {job.name} {post} {check}")
            else:
                if variant.name == EMPTY:
                    lines.append(f"SCRIPT PRE {job.name} {TRUE}")
                lines.append(f"SCRIPT POST {job.name} {TRUE}")
        variant.dag.write_text("\n".join(lines) + "\n")


def makespan(lane: Lane) -> float:
    """Seconds from DAGMan's start to its end."""
    text = Path(f"{lane.dag}.dagman.out").read_text()
    stamps = re.findall(r"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d)", text, re.MULTILINE)
    first, last = (
        datetime.strptime(stamp, "%m/%d/%y %H:%M:%S") for stamp in stamps[:: len(stamps) - 1]
    )
    return (last - first).total_seconds()


def between(lane: Lane) -> float:
    """Seconds, on average, from the end of the last of a job's parents until the job is submitted:
    POST of the one, PRE of the other, and DAGMan's own steps in between."""
    times = {entry.job.name: entry for entry in timeline(lane.submit_dir)}
    return fmean(
        times[job.name].submit - max(times[parent].end for parent in job.parents)
        for job in lane.jobs
        if job.parents
    )
