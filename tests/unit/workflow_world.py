"""Workflows as a follower leaves them in an archive."""

from __future__ import annotations

from typing import Any

from monitors.base.measurement import Measurement
from monitors.workflows.logs.status import Status, WorkflowState

UUID = "5b0e2c1e-8f0a-4b52-9f5e-0d8b5a6f1c11"
T0 = 1_000_000.0
BWA = "soykb::bwa_mem:1.0@mu"


def workflow(key: str = UUID, at: float = T0, **details: Any) -> Measurement:
    known = {
        "name": "soykb", "user": "ada", "submit_dir": "/home/ada/soykb/run0001",
        "host": "submit.example", "root": key, "parent": "", "dag": "soykb-0.dag",
    }  # fmt: skip
    return Measurement(f"workflow:{key}", "workflow", key, 1.0, "1", at, "submit directory", key,
                       known | details)  # fmt: skip


def status(
    key: str = UUID,
    at: float = T0 + 100,
    done: int = 1,
    state: WorkflowState = WorkflowState.RUNNING,
    total: int = 5,
    in_queue: int = 2,
    name: str = "",
) -> Measurement:
    made = Status(
        unready=max(0, total - done - in_queue), ready=0, pre=0, in_queue=in_queue, post=0,
        done=done, fail=0, percent_done=100.0 * done / total, total=total, state=state, at=at,
    )  # fmt: skip
    return made.measurement(key, name or f"{at}:{done}:{state}")


def job(
    name: str,
    number: int = 0,
    key: str = UUID,
    subject: str = BWA,
    seconds: float = 30.0,
    at: float = T0 + 60,
    **details: Any,
) -> Measurement:
    known = {
        "job": name, "task": name.rpartition("_")[2], "kind": "compute", "attempt": number,
        "retry": number, "outcome": "done", "exitcode": 0, "host": "n1.mu", "submitted_at": T0,
        "started_at": at - seconds, "queued_s": 2.0, "starts": 1, "cpu_s": seconds - 1,
        "bytes_in": 4000, "bytes_out": 10, "stderr": "", "output": f"/x/{name}.out",
    }  # fmt: skip
    return Measurement(f"job:{key}:{name}:{number}", "job", subject, seconds, "s", at, "kickstart",
                       key, known | details)  # fmt: skip


def transfer(
    name: str, key: str = UUID, pair: str = "iplant>mu", n_bytes: int | None = 10**9,
    seconds: float = 10.0, at: float = T0 + 40, **details: Any,
) -> Measurement:  # fmt: skip
    rate = 8 * n_bytes / seconds if n_bytes and seconds else None
    known = {
        "job": name, "kind": "stage_in", "attempt": 0, "retry": 0, "bytes": n_bytes,
        "seconds": seconds, "files": 3, "goodput_bps": rate,
        "retries": 0, "outcome": "done", "path": ["iplant", "s2", "s1", "mu"],
        "transit": f"w:{name}:0:iplant-mu", "tool": "pegasus-transfer", "direction": "in",
    }  # fmt: skip
    return Measurement(f"job_transfer:{key}:{name}:{pair}:{at}", "job_transfer", pair,
                       float(n_bytes or 0), "byte", at, "hooks", key, known | details)  # fmt: skip


def placement(name: str, key: str = UUID, site: str = "mu", **details: Any) -> Measurement:
    known = {"job": name, "reason": "least time of 2 sites", "alternatives": []}
    return Measurement(f"placement:{key}:{name}", "placement", site, 42.0, "s", T0, "sites",
                       key, known | details)  # fmt: skip


def example() -> list[Measurement]:
    """What the examples of docs/api-monitoring.md are about."""
    failed: dict[str, Any] = {"outcome": "failed", "exitcode": 3}
    failed["stderr"] = "cannot open reads.fq\n"
    return [
        workflow(),
        status(at=T0 + 100, done=1),
        status(at=T0 + 200, done=2),
        transfer("stage_in_remote_mu_0_0"),
        job("bwa_mem_ID1", seconds=20.0, at=T0 + 60, queued_s=1.0, cpu_s=20.0),
        job("bwa_mem_ID3", seconds=10.0, at=T0 + 63, queued_s=3.0, cpu_s=9.0, bytes_in=None,
            bytes_out=None, submitted_at=T0 + 50, started_at=T0 + 53, **failed),
        job("bwa_mem_ID3", 1, seconds=40.0, at=T0 + 180, queued_s=2.0, cpu_s=26.0),
        placement("bwa_mem_ID3"),
    ]  # fmt: skip
