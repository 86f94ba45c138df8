"""A broker's archive with a day of everything in it, and transits by its own interface: what the
dashboard's tests look at."""

from __future__ import annotations

import json
import math
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from browser import Page

from monitors.alerts.anomalies.model import Anomaly, to_measurement
from monitors.base.measurement import UNITS, Measurement
from monitors.workflows.planned.levels import DagShape, dag_fact, levels_of

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "adon.yml"
QUIET: dict[str, Any] = {
    "topology": yaml.safe_load(_EXAMPLE.read_text(encoding="utf-8"))["topology"],
    "controller": {"driver": "simulated"},
}
"""What a broker is told that nothing happens to by itself."""
AGENTS: dict[str, Any] = {
    "agents": [{"name": name, "address": f"127.0.0.{n}"} for n, name in ((2, "mu"), (3, "tacc"))],
    "tasks": {"rtt": {"tool": "echo", "from": "mu", "to": "tacc", "every": "1 min", "for": "5 s"}},
}
"""Section ``monitoring`` of one that has agents, which never come."""
LISTS = ("transfers", "pairs", "relays", "templates", "policies", "accounts")
PAGES = ("workflows", "network", "decisions", "measurements", "agents", "pool", *LISTS)


# Connected to the feed, or a page of which no feed tells.
LIVE = (
    "document.getElementById('line').dataset.state === 'live'"
    " || /every [0-9]/.test(document.getElementById('line').textContent)"
)


def show(page: Page, url: str, name: str) -> None:
    """Open a page of the dashboard and wait until it is drawn and connected."""
    page.go(f"{url}/dashboard/#/{name}")
    page.wait(f"location.hash === {json.dumps(f'#/{name}')}")
    page.run("new Promise((done) => setTimeout(done))")  # the page before it is gone
    # Neither the page nor, of a workflow, what is asked for after it is still to come.
    page.wait("document.querySelector('main h1') && !document.querySelector('[data-key=wait]')")
    page.wait(LIVE)


def post(url: str, path: str, body: object) -> Any:
    """What a broker answers."""
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, kind)) as answer:
        return json.load(answer)


WORKFLOW = "5b0e2c1e-8f0a-4b52-9f5e-0d8b5a6f1c11"
INSIDE = "5b0e2c1e-8f0a-4b52-9f5e-0d8b5a6f1c12"
FAILED = "77aa2c1e-8f0a-4b52-9f5e-0d8b5a6f1c99"
FOREIGN = "<img src=x onerror=alert(1)>"
"""A job may be called anything."""


def measured(
    metric: str, subject: str, value: float, at: float, source: str = "test", workflow: str = "",
    key: str = "", /, **details: Any,
) -> Measurement:  # fmt: skip
    """One measurement, with its metric's unit."""
    name = key or f"{metric}:{workflow}:{subject}:{at}"
    unit = UNITS.get(metric, "1")
    return Measurement(name, metric, subject, value, unit, at, source, workflow, details)


def status(workflow: str, at: float, state: str = "running", **counts: int) -> Measurement:
    """A status as a follower records it."""
    names = ("unready", "ready", "pre", "in_queue", "post", "done", "fail")
    fields: dict[str, Any] = {name: counts.get(name, 0) for name in names}
    total = sum(fields.values()) + counts.get("futile", 0)
    share = round(100 * fields["done"] / total, 2) if total else 0.0
    more = {"percent_done": share, "total": total, "futile": counts.get("futile", 0)}
    details = {**fields, **more, "state": state, "root": counts.get("root", workflow)}
    return measured(
        "status", workflow, share, at, "dagman", workflow, f"status:{workflow}:{at}", **details
    )


def workflow(key: str, name: str, at: float, **more: Any) -> Measurement:
    """What a workflow is, as a follower records it."""
    known = {
        "name": name, "user": "ada", "submit_dir": f"/home/ada/{name}/run0001",
        "host": "submit.example", "root": key, "parent": "", "planned_at": at,
        "dag": f"{name}-0.dag", "label": name,
    }  # fmt: skip
    return measured("workflow", key, 1.0, at, "dagman", key, f"workflow:{key}", **(known | more))


def job(
    flow: str, name: str, kind: str, site: str, start: float, seconds: float, **more: Any
) -> Measurement:
    """An attempt that has ended."""
    known: dict[str, Any] = {
        "job": name, "task": "", "kind": "compute", "attempt": 0, "retry": 0, "outcome": "done",
        "exitcode": 0, "host": f"n1.{site}.example", "queued_s": 2.5, "cpu_s": 0.9 * seconds,
        "bytes_in": 12_000_000, "bytes_out": 3_000_000, "submitted_at": start - 2.5,
        "started_at": start,
    }  # fmt: skip
    subject = f"{kind}@{site}"
    key = f"job:{flow}:{name}:{more.get('attempt', 0)}"
    return measured("job", subject, seconds, start + seconds, "dagman", flow, key, **(known | more))


def placement(flow: str, name: str, site: str, at: float) -> Measurement:
    """Why a job is where it is, as :mod:`monitors.workflows.facts.plan` records it."""
    others = [other for other in ("mu", "tacc", "iplant") if other != site]
    alternatives = [
        {"site": where, "seconds": s, "wait_s": s / 6, "compute_s": s / 3, "transfer_s": s / 2}
        for where, s in zip([site, *others], (42.0, 61.0, 77.5), strict=True)
    ]
    reason = "the shortest T_t of three sites: its data is there and three workers are free"
    return measured(
        "placement", site, 42.0, at, "site selection", flow, f"placement:{flow}:{name}",
        job=name, transformation="soykb::bwa_mem:1.0", seconds=42.0, policy="chains+search",
        reason=reason, alternatives=alternatives,
    )  # fmt: skip


def _noise(n: int) -> float:
    """Between -1 and 1, always the same for the same number."""
    return math.sin(12.9898 * n) * math.cos(78.233 * n)


def networks(now: float) -> Iterator[Measurement]:
    """A day of paths, with a level that changed six hours ago and a dip."""
    for n in range(24 * 12):
        at = now - 86400 + 300 * n + 30
        cycle = 1 + 0.08 * math.sin(2 * math.pi * n / 288)
        level = 182e6 if n < 246 else 121e6
        yield measured("tcp_throughput", "mu>tacc", level * cycle * (1 + 0.04 * _noise(n)), at)
        other = 94e6 * (0.4 if 250 <= n < 262 else 1.0)
        yield measured("tcp_throughput", "iplant>mu", other * (1 + 0.03 * _noise(n + 7)), at)
        yield measured("rtt", "mu>tacc", 0.053 * (1 + 0.02 * _noise(n + 3)), at)
        yield measured("loss", "mu>tacc", 0.0005 if n % 17 else 0.012, at)
        yield measured("cpu_use", "mu/dtn1", 0.35 + 0.2 * _noise(n + 11), at)
    for n in range(40):
        at = now - 40 * 900 + 900 * n
        yield measured("throughput", "iplant>mu", 150e6 * (1 + 0.1 * _noise(n)), at)
    since = now - 86400 + 300 * 246 + 30
    yield to_measurement(
        Anomaly(
            "tcp_throughput", "mu>tacc", "level", since, since + 1200, 181.4e6, 121.2e6, -0.33,
            0.998, "the median of 4 measurements is 33 % less than expected, 9.2 times what"
            " noise does to it",
        )
    )  # fmt: skip
    dip = now - 86400 + 300 * 250 + 30
    fell = Anomaly(
        "tcp_throughput", "iplant>mu", "dip", dip, dip + 900, 94e6, 37.6e6, -0.6, 0.99,
        "60 % less than expected",
    )  # fmt: skip
    yield to_measurement(fell)
    why = "60 % less than expected; it was back after 1 h"
    yield to_measurement(replace(fell, until=dip + 3600, why=why))


def pools(now: float) -> Iterator[Measurement]:
    """An hour of a pool that gets more slots when jobs come."""
    sites = {"mu": (8, 0), "tacc": (16, 2)}
    for n in range(61):
        at = now - 3600 + 60 * n
        whole = {"pool_slots": 0.0, "pool_busy": 0.0, "pool_demand": 0.0}
        for site, (slots, shift) in sites.items():
            wanted = max(0, round((slots + 6) * math.sin((n + shift) / 12) ** 2))
            grown = slots + (4 if 20 <= n < 45 else 0)
            sizes = (float(grown), float(min(grown, wanted)), float(wanted))
            for metric, value in zip(whole, sizes, strict=True):
                whole[metric] += value
                yield measured(metric, site, value, at, "condor")
        for metric, value in whole.items():
            yield measured(metric, "", value, at, "condor")
    yield measured(
        "expansion", "soykb-night", 8.0, now - 2400, "adon", "", "expansion:1", until=now + 1200,
        cores=1, memory_mb=1024, bytes=0, reason="8 jobs are to run at once",
    )  # fmt: skip
    yield measured(
        "pool_decision", "adon", 3.0, now - 2390, "adon pool", "", "pool_decision:1",
        start={"m1.large": 2}, drain=["adon-1"], keep=[], give_up=[],
        delete={"adon-0": "it left the pool: STARTD_NOCLAIM_SHUTDOWN"},
        why={
            "m1.large": "8 jobs of soykb-night would wait for more than 180 s, a boot",
            "adon-1": "no job fits it before ending and booting again is paid for",
            "limits": "money: enough for 2 of 3 m1.large",
        },
        demand={"queued": 8, "coming": 0, "leased": 8},
        machines={"booting": 2, "running": 1, "draining": 1},
        reason="8 jobs wait and no slot is free",
    )  # fmt: skip


def workflows(now: float) -> Iterator[Measurement]:
    """One that runs with another inside it, one that failed, and many that are done."""
    begun = now - 900
    yield workflow(WORKFLOW, "soykb", begun)
    for n in range(9):
        counts = {"done": n, "in_queue": min(3, 12 - n), "ready": 1 if n < 8 else 0}
        left = 14 - sum(counts.values())
        yield status(WORKFLOW, begun + 60 * n, unready=left, **counts)
    yield workflow(INSIDE, "soykb-merge", begun + 300, root=WORKFLOW, parent=WORKFLOW)
    yield status(INSIDE, begun + 400, done=2, in_queue=1, unready=1, root=WORKFLOW)  # type: ignore[arg-type]
    parents: dict[str, list[str]] = {f"bwa_mem_ID{n:07d}": [] for n in range(5)}
    parents |= {f"sort_ID{n:07d}": [f"bwa_mem_ID{n - 5:07d}"] for n in range(5, 10)}
    parents |= {FOREIGN: list(parents)[5:], "merge_ID0000011": [FOREIGN]}
    plan = {"policy": "chains+search", "expected_s": 812.5, "portfolio": {"random": 1290.0}}
    yield dag_fact(WORKFLOW, begun, DagShape.of(parents, levels_of(parents)), plan)
    for n in range(8):
        kind = "soykb::bwa_mem:1.0" if n < 5 else "soykb::sort:1.0"
        site = ("mu", "tacc")[n % 2]
        name = f"{'bwa_mem' if n < 5 else 'sort'}_ID{n:07d}"
        yield placement(WORKFLOW, name, site, begun)
        yield job(WORKFLOW, name, kind, site, begun + 60 * n, 40 + 7 * _noise(n))
    yield job(
        WORKFLOW, FOREIGN, "soykb::sort:1.0", "mu", begun + 500, 3.0, outcome="failed", exitcode=3,
        stderr=f"sort: cannot open reads.fq: No such file or directory\n{FOREIGN}\n",
    )  # fmt: skip
    for n, (src, dst, rate) in enumerate([("iplant", "mu", 140e6), ("mu", "tacc", 96e6)]):
        size = 1_000_000_000
        seconds = 8 * size / rate
        yield measured(
            "job_transfer", f"{src}>{dst}", size, begun + 100 + n, "dagman", WORKFLOW,
            f"job_transfer:{n}", job=f"stage_in_{n}", bytes=size, seconds=seconds,
            goodput_bps=rate, files=3,
            path=[src, "s2", "s1", dst] if src == "iplant" else [src, "s1", "s2", dst],
            transit=f"{WORKFLOW}:{n}", retries=n, tool="pegasus-transfer", direction="in",
            outcome="done",
        )  # fmt: skip
    yield workflow(FAILED, "montage-m17", now - 9000, user="grace")
    yield status(FAILED, now - 8800, done=5, in_queue=2, unready=3)
    yield status(FAILED, now - 8000, "failed", done=5, fail=1, futile=4)
    yield job(
        FAILED, "mProject_ID0000004", "montage::mProject:6.0", "tacc", now - 8200, 12.0,
        outcome="failed", exitcode=1, stderr="mProject: image has no header\n",
    )  # fmt: skip
    for n in range(12):
        key = f"00000000-0000-4000-8000-{n:012d}"
        yield workflow(key, f"soykb-{n + 1:02d}", now - 86400 - 3600 * n)
        yield status(key, now - 80000 - 3600 * n, "done", done=14)
        yield measured(
            "job_transfer", "iplant>mu", 1e9, now - 80500 - 3600 * n, "dagman", key, job="in",
            bytes=1e9, seconds=100.0, goodput_bps=8e7, path=[], tool="pegasus-transfer",
            outcome="done",
        )  # fmt: skip


def everything(now: float | None = None) -> list[Measurement]:
    """All of it."""
    when = time.time() if now is None else now
    return [*networks(when), *pools(when), *workflows(when)]


def requests(now: float) -> list[dict[str, Any]]:
    """Bodies of ``POST /v1/transits``: some that run, one that waits, some to come."""
    return [
        {"id": "w1:stage_in_0:0:iplant-mu", "src": "iplant", "dst": "mu", "min_bps": 9e7,
         "max_bps": 1.2e8, "size_bytes": 25 * 10**9, "workflow": WORKFLOW, "job": "stage_in_0",
         "user": "ada", "project": "soykb"},
        {"id": "w1:stage_out_1:0:mu-tacc", "src": "mu", "dst": "tacc", "min_bps": 1.2e8,
         "max_bps": 1.5e8, "size_bytes": 40 * 10**9, "user": "ada", "job": "stage_out_1"},
        {"id": "w2:stage_in_0:0:local-tacc", "src": "local", "dst": "tacc", "min_bps": 1.5e8,
         "user": "grace", "job": "stage_in_0"},
        {"id": "w3:reserved", "src": "local", "dst": "iplant", "min_bps": 5e7, "max_bps": 6e7,
         "start": now + 900, "end": now + 2400, "user": "ada", "job": "night"},
        {"id": "w4:reserved", "src": "mu", "dst": "iplant", "min_bps": 8e6, "max_bps": 1e7,
         "start": now + 300, "end": now + 3000, "user": "ada", "job": "probe"},
    ]  # fmt: skip
