#!/usr/bin/env python3
"""Run a workflow's jobs on this machine, in one directory, without Pegasus or HTCondor.

    run_local.py --workflow DIR/workflow.yml --inputs DIR/inputs --work WORKDIR [--report FILE]
                 [--tools DIR]

For development and tests of the example's programs: jobs run one after another, in an order that
their dependencies allow, with WORKDIR as working directory. Prints each job's seconds and, with
--report, writes them and the size of every file as JSON. Exit status 1 when a job fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import yaml
from pgen import Parser

TOOLS = Path(__file__).resolve().parent / "tools"


class JobFailed(RuntimeError):
    """A job ended with a status other than 0, or did not write what it promised."""


def load(path: Path) -> dict[str, Any]:
    """A workflow.yml as written by Pegasus's API. Raises OSError, yaml.YAMLError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return dict(yaml.load(path.read_text(encoding="utf-8"), Loader=loader))


def ordered(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    """Jobs in an order in which each comes after its parents. Raises CycleError."""
    jobs = {job["id"]: job for job in workflow["jobs"]}
    parents: dict[str, set[str]] = {job: set() for job in jobs}
    for link in workflow.get("jobDependencies", []):
        for child in link["children"]:
            parents[child].add(link["id"])
    return [jobs[job] for job in TopologicalSorter(parents).static_order()]


def run_job(job: dict[str, Any], work: Path, tools: Path) -> float:
    """Run one job in ``work``, by a program of ``tools`` or on PATH; returns its wall-clock
    seconds. Raises JobFailed."""
    own = tools / job["name"]
    command = [str(own if own.is_file() else job["name"]), *map(str, job["arguments"])]
    started = time.monotonic()
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise JobFailed(f"{job['id']} {job['name']}: exit status {done.returncode}: {last}")
    for use in job["uses"]:
        if use["type"] == "output" and not (work / use["lfn"]).is_file():
            raise JobFailed(f"{job['id']} {job['name']}: did not write {use['lfn']}")
    return seconds


def run(workflow: dict[str, Any], inputs: Path, work: Path, tools: Path) -> dict[str, Any]:
    """Run all jobs; returns ``{"jobs": [...], "files": {lfn: bytes}}``. Raises JobFailed."""
    work.mkdir(parents=True, exist_ok=True)
    for file in sorted(inputs.iterdir()):
        link = work / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file.resolve())
    ran = []
    for job in ordered(workflow):
        seconds = run_job(job, work, tools)
        print(f"{seconds:8.2f} s  {job['id']} {job['name']}", flush=True)
        ran.append({"id": job["id"], "name": job["name"], "seconds": seconds})
    lfns = sorted({use["lfn"] for job in workflow["jobs"] for use in job["uses"]})
    return {"jobs": ran, "files": {lfn: (work / lfn).stat().st_size for lfn in lfns}}


def main(argv: list[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--workflow", type=Path, required=True)
    parser.add_argument("--inputs", type=Path, required=True, help="directory of input files")
    parser.add_argument("--work", type=Path, required=True, help="directory to run in")
    parser.add_argument("--tools", type=Path, default=TOOLS, help="directory of programs (SoyKB's)")
    parser.add_argument("--report", type=Path, help="JSON file for seconds and sizes")
    options = parser.parse_args(argv)
    try:
        report = run(load(options.workflow), options.inputs, options.work, options.tools.resolve())
        if options.report is not None:
            options.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except (OSError, yaml.YAMLError, CycleError, KeyError) as error:
        print(f"run_local.py: {error}", file=sys.stderr)
        return 2
    except JobFailed as error:
        print(f"run_local.py: {error}", file=sys.stderr)
        return 1
    total = sum(job["seconds"] for job in report["jobs"])
    print(f"{total:8.2f} s  {len(report['jobs'])} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
