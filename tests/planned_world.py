"""Submit directories in the shapes that Pegasus 6.0 plans: its submit files, transfer lists,
PegasusLite scripts and logs of sizes, for each way it has of moving files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

WORKFLOW = "11111111-2222-3333-4444-555555555555"
PARENT = "99999999-2222-3333-4444-555555555555"
NAME = "mini"
SUBMIT_PATH = "/opt/site/bin:/usr/bin:/bin"

_SUBMIT = """######################################################################
# PEGASUS WMS GENERATED SUBMIT FILE
# DAG : mini, Index = 0, Count = null
# SUBMIT FILE NAME : {job}.sub
######################################################################
stream_error  = false
stream_output = false
environment = "{environment}"
{arguments}executable = {executable}
input = {folder}/{job}.in
log = {submit_dir}/mini-0.log
priority = 700
universe = {universe}
wf_submit_dir = {submit_dir}
+pegasus_generator = "Pegasus"
+pegasus_wf_uuid = "{workflow}"
+pegasus_wf_xformation = "{transformation}"
+pegasus_wf_dag_job_id = "{job}"
+pegasus_site = "{site}"
+pegasus_cluster_size = 1
queue
######################################################################
# END OF SUBMIT FILE
######################################################################

"""
_LITE = """#!/bin/bash
set -e
. pegasus-lite-common.sh
pegasus_lite_init
{stage_in}
set +e
job_ec=0
pegasus_lite_section_start task_execute
pegasus-kickstart  -n t::split:1.0 -N ID1 -R {site} /opt/bin/split x
job_ec=$?
pegasus_lite_section_end task_execute
set -e
{stage_out}
pegasus_lite_final_exit

"""
_LITE_STAGE = """pegasus_lite_section_start {section}
printf "\\n######## Staging ########\\n"  1>&2
pegasus-transfer --threads 1  1>&2 << 'eof'
{listing}
eof

pegasus_lite_section_end {section}
"""


@dataclass(frozen=True, slots=True)
class File:
    """An entry of a list: sites and URLs of both ends; ``size`` only where Pegasus declares it."""

    lfn: str
    src: str
    src_url: str
    dst: str
    dst_url: str
    size: int | None = None
    linkage: str = "input"
    checksum: bool = False

    def text(self, number: int) -> str:
        size = f'\n   "attributes": {{\n     "size":"{self.size}"\n   }},' if self.size else ""
        checksum = '\n   "generate_checksum": true,' if self.checksum else ""
        src = f'{{ "site_label": "{self.src}", "url": "{self.src_url}", "priority": 10 }}'
        dst = f'{{ "site_label": "{self.dst}", "url": "{self.dst_url}" }}'
        return (
            f' {{ "type": "transfer",\n   "linkage": "{self.linkage}",\n   "lfn": "{self.lfn}",\n'
            f'   "id": {number},{checksum}{size}\n   "src_urls": [\n     {src}\n   ],\n'
            f'   "dest_urls": [\n     {dst}\n   ] }}'
        )


def gsiftp(site: str, path: str) -> str:
    return f"gsiftp://dtn.{site}.example.edu:2811/{site}/{path}"


def listing(files: Iterable[File]) -> str:
    return "[\n" + "\n ,\n".join(f.text(n) for n, f in enumerate(files, 1)) + "\n]"


class Planned:
    """A planned workflow, to which jobs are added."""

    def __init__(self, where: Path, workflow: str = WORKFLOW, root: str | None = None) -> None:
        self.where = where
        self.workflow = workflow
        self.folder = where / "00" / "00"
        self.folder.mkdir(parents=True)
        (where / "braindump.yml").write_text(
            f'user: "ada"\nroot_wf_uuid: "{root or workflow}"\nwf_uuid: "{workflow}"\n'
            f'dax_label: "{NAME}"\nsubmit_dir: "{where}"\ndag: "{NAME}-0.dag"\ntype: "dag"\n'
        )
        (where / f"{NAME}-0.dag").write_text("MAXJOBS stagein 10\n\n")
        self.cache = where / f"{NAME}-0.cache"
        self.cache.write_text("")

    def job(
        self,
        job: str,
        transformation: str,
        site: str,
        universe: str = "local",
        arguments: str = "",
    ) -> Path:
        """Its submit file and its line in the DAG; where the file is."""
        with (self.where / f"{NAME}-0.dag").open("a") as dag:
            dag.write(
                f"JOB {job} 00/00/{job}.sub\n"
                f"SCRIPT PRE {job} /opt/adon/adon-pre $JOB $RETRY $MAX_RETRIES\n"
                f"RETRY {job} 1\n\n"
            )
        environment = (
            f"LANG=en_US.UTF-8 PATH={SUBMIT_PATH} CONDOR_JOBID=$(cluster).$(process) "
            f"PEGASUS_WF_UUID={self.workflow} PEGASUS_DAG_JOB_ID={job} PEGASUS_SITE={site} "
            f"GRIDSTART_CLEANUP='/bin/rm -rf {job}.out.lof ' _PEGASUS_CONNECT_STDIN=true"
        )
        file = self.folder / f"{job}.sub"
        file.write_text(
            _SUBMIT.format(
                job=job,
                environment=environment,
                arguments=f'arguments = "{arguments}"\n' if arguments else "",
                executable="/opt/pegasus/bin/x",
                folder=self.folder,
                submit_dir=self.where,
                universe=universe,
                workflow=self.workflow,
                transformation=transformation,
                site=site,
            )
        )
        return file

    def transfer_job(
        self, job: str, files: Sequence[File], site: str = "local", universe: str = "local"
    ) -> Path:
        """One of Pegasus's own, with its list; its submit file."""
        (self.folder / f"{job}.in").write_text(listing(files))
        arguments = "/opt/pegasus/bin/pegasus-kickstart  -n pegasus::transfer -N null -i - "
        arguments += f"-R {site}  -s @$_CONDOR_SCRATCH_DIR/{job}.out.lof "
        arguments += "/opt/pegasus/bin/pegasus-transfer  --threads 2 "
        return self.job(job, "pegasus::transfer", site, universe, arguments)

    def lite_job(
        self, job: str, site: str, inputs: Sequence[File], outputs: Sequence[File]
    ) -> None:
        """A compute job with its PegasusLite script."""
        stages = [
            _LITE_STAGE.format(section=section, listing=listing(files)) if files else ""
            for section, files in (("stage_in", inputs), ("stage_out", outputs))
        ]
        (self.folder / f"{job}.sh").write_text(
            _LITE.format(stage_in=stages[0], stage_out=stages[1], site=site)
        )
        self.job(job, "t::split:1.0", site, "vanilla")

    def cached(self, lfn: str, url: str, site: str) -> None:
        """Where the planner noted that a file lies."""
        with self.cache.open("a") as cache:
            cache.write(f'{lfn} {url} site="{site}"\n')

    def input_sizes(self, job: str, sizes: dict[str, int]) -> None:
        """What the planner knew of a job's inputs."""
        items = [
            {"_type": "data", "_id": lfn, "_attributes": {"size": str(size)}}
            for lfn, size in sizes.items()
        ]
        (self.folder / f"{job}.in.meta").write_text(json.dumps(items, indent=1))

    def wrote(self, lfn: str, size: int) -> None:
        """What pegasus-exitcode -M noted of a file that a job wrote."""
        with (self.where / f"{NAME}-0.cache.meta").open("a") as log:
            log.write(
                f'{lfn} @@PFN@@ user="ada" size="{size}" ctime="2026-11-20T23:10:43+00:00" '
                'checksum.type="sha256" checksum.value="00ff"\n'
            )
