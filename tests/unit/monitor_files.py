"""Writes what DAGMan, HTCondor and a planner write, for tests of the monitors."""

from __future__ import annotations

import json
import time
from pathlib import Path

START = 1_700_000_000.0
HEADER = "Done     Pre   Queued    Post   Ready   Un-Ready   Failed"
RULES = "===     ===      ===     ===     ===        ===      ==="


def stamp(at: float) -> str:
    return time.strftime("%m/%d/%y %H:%M:%S", time.localtime(at))


def starting(at: float = START, pid: int = 4242) -> str:
    lines = ["*" * 54, "** condor_dagman (CONDOR_DAGMAN) STARTING UP", f"** PID = {pid}"]
    return "".join(f"{stamp(at)} {line}\n" for line in lines)


def table(
    at: float,
    *,
    done: int = 0,
    pre: int = 0,
    queued: int = 0,
    post: int = 0,
    ready: int = 0,
    unready: int = 0,
    fail: int = 0,
    futile: int | None = 0,
    total: int | None = None,
) -> str:
    numbers = [done, pre, queued, post, ready, unready, fail]
    header, rules = f" {HEADER}", f"  {RULES}"
    if futile is not None:
        numbers.append(futile)
        header, rules = f"{header}   Futile", f"{rules}      ==="
    count = sum(numbers) if total is None else total
    row = "".join(f"{number:6d}" for number in numbers)
    lines = [f"Of {count} nodes total:", header, rules, row, "0 job proc(s) currently held"]
    return "".join(f"{stamp(at)} {line}\n" for line in lines)


def exiting(at: float, status: int) -> str:
    return f"{stamp(at)} **** condor_dagman (condor_DAGMAN) pid 4242 EXITING WITH STATUS {status}\n"


def removal(at: float) -> str:
    return f"{stamp(at)} Received SIGUSR1\n{stamp(at)} Aborting DAG...\n"


def event(number: int, cluster: int, at: float, text: str, *details: str) -> str:
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) + f"{at % 1:.3f}"[1:]
    body = "".join(f"    {line}\n" for line in details)
    return f"{number:03d} ({cluster:03d}.000.000) {clock} {text}\n{body}...\n"


def submitted(cluster: int, at: float, node: str = "") -> str:
    ad = f'[ DAGNodeName = "{node}"; JobBatchName = "wf-0.dag+1" ]'
    first = "Job submitted from host: <10.254.0.1:1?alias=ap>"
    return event(0, cluster, at, first, *([ad] if node else []))


def executing(cluster: int, at: float) -> str:
    return event(1, cluster, at, "Job executing on host: <10.254.1.2:1>", "SlotName: slot1_1@mu")


def terminated(cluster: int, at: float, returned: int = 0) -> str:
    return event(
        5, cluster, at, "Job terminated.", f"(1) Normal termination (return value {returned})"
    )


def aborted(cluster: int, at: float) -> str:
    return event(9, cluster, at, "Job was aborted.", "via condor_rm (by user adon)")


def record_line(start: float, end: float, inputs: dict[str, int], exitcode: int = 0) -> str:
    record = {
        "job": "align_ID0000001",
        "transformation": "soykb::bwa_mem:1.0",
        "site": "mu",
        "start": start,
        "end": end,
        "exitcode": exitcode,
        "host": "node1",
        "cpu_s": 1.5,
        "inputs": inputs,
        "outputs": {"a.bam": 10},
    }
    return f"adon-job-record: {json.dumps(record)}\n"


SUB = """\
executable = /bin/true
output = {name}.out
+pegasus_site = "{site}"
+pegasus_wf_xformation = "{transformation}"
+pegasus_wf_dax_job_id = "{task}"
+pegasus_job_class = {job_class}
queue
"""


class Submitted:
    """A submit directory in Pegasus's shape with two compute jobs and a transfer job."""

    JOBS = (
        ("align_ID0000001", "mu", "soykb::bwa_mem:1.0", "ID0000001", 1),
        ("align_ID0000002", "mu", "soykb::bwa_mem:1.0", "ID0000002", 1),
        ("stage_in_local_mu_0_0", "local", "pegasus::transfer", "null", 2),
    )

    def __init__(self, path: Path, uuid: str = "b7a9c3f0") -> None:
        self.path, self.uuid = path, uuid
        subs = path / "00" / "00"
        subs.mkdir(parents=True)
        (path / "braindump.yml").write_text(
            f'wf_uuid: "{uuid}"\ndag: "wf-0.dag"\ndax_label: "wf"\ncondor_log: "wf-0.log"\n'
        )
        lines = []
        for name, site, transformation, task, job_class in self.JOBS:
            text = SUB.format(
                name=subs / name,
                site=site,
                transformation=transformation,
                task=task,
                job_class=job_class,
            )
            (subs / f"{name}.sub").write_text(text)
            lines.append(f"JOB {name} 00/00/{name}.sub\nRETRY {name} 1\n")
        (path / "wf-0.dag").write_text("".join(lines))
        self.out = path / "wf-0.dag.dagman.out"
        self.nodes = path / "wf-0.dag.nodes.log"
        self.log = path / "wf-0.log"
        self.dagman = path / "wf-0.dag.dagman.log"

    def output(self, job: str) -> Path:
        return self.path / "00" / "00" / f"{job}.out"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def whole_run(start: float = START, steps: int = 3) -> str:
    """A run of ``steps`` jobs one after the other, done in the end."""
    text = starting(start)
    for done in range(steps):
        at = start + 10 * done
        text += table(at, done=done, ready=1, unready=steps - done - 1)
        text += table(at + 5, done=done, queued=1, unready=steps - done - 1)
    return text + table(start + 10 * steps, done=steps) + exiting(start + 10 * steps, 0)
