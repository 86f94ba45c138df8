"""Runs that never were, as facts for the report: a small one to look into, a large one for size."""

from __future__ import annotations

from typing import Any

from made_transit import made_transit

from adon.report.run_facts import Bar, DagJob, LinkSample, RunFacts
from examples.demo.facts import DemoFacts
from examples.soykb.scenario import result
from network_provisioner.base.model import Transit, TransitState

SITES = ("iplant", "mu", "tacc")
T0 = 1_700_000_000.0


def transit(**changes: Any) -> Transit:
    """A transit over s2 and s1 that held 100 Mb/s for four seconds."""
    data: dict[str, Any] = {
        "id": "wf:stage_in:0:iplant-mu",
        "src": "iplant",
        "dst": "mu",
        "state": TransitState.RELEASED,
        "job": "stage_in_local_mu_0_0",
        "path": ["iplant", "s2", "s1", "mu"],
        "layer": "l2",
        "requested_bps": 25e6,
        "granted_bps": 100e6,
        "requested_at": T0 + 9.9,
        "installed_at": T0 + 10,
        "released_at": T0 + 14,
        "bytes": 12_000_000,
        "seconds": 1.0,
        "goodput_bps": 96e6,
        "switch_bytes": 12_400_000,
        "reason": "L2 has the highest score, 9.76, of 2 paths",
    }
    return made_transit(**(data | changes))


def estimate(value: float | None, source: str = "catalog", **more: Any) -> dict[str, Any]:
    """A believed value, as site selection writes it."""
    return {"value": value, "source": source, "age_s": 0.0, **more}


def alternative(site: str, seconds: float = 6.0, **changes: Any) -> dict[str, Any]:
    """The terms of a job at a site, in the form of a site mapping."""
    data: dict[str, Any] = {
        "site": site,
        "t_q_s": seconds / 6,
        "t_c_s": seconds / 3,
        "t_n_s": seconds / 2,
        "t_t_s": seconds,
        "gamma": "Γ_a",
        "path": f"iplant>{site}",
        "s_c_bytes": 12_000_000.0,
        "s_t_bytes": 12_000_000.0,
        "inputs": {
            "t_q": estimate(seconds / 6, "archive", age_s=96.0, note="measured at mu"),
            "n": estimate(4.0, "collector", used=1.0),
            "gamma_c": estimate(5.8e6, "archive", age_s=130.5),
            "gamma_a": estimate(1.1e7, "archive", age_s=139.6),
            "gamma_t": estimate(None, "topology", note="4 streams"),
        },
    }
    return data | changes


def placement(job: str, transformation: str, site: str, *others: str) -> dict[str, Any]:
    """A job that goes to ``site`` and could go to the others."""
    return {
        "job": job,
        "transformation": transformation,
        "site": site,
        "reason": f"because <{site}> is nearer",
        "start_s": 0.0,
        "end_s": 6.0,
        "alternatives": [
            alternative(site),
            *(alternative(other, 6.0 + index) for index, other in enumerate(others, 1)),
        ],
    }


NEVER = {"t_q_s": None, "t_t_s": float("inf"), "inputs": {}, "path": "", "gamma": ""}


def facts(**changes: Any) -> DemoFacts:
    """A run of three jobs and one transfer."""
    first = placement("ID0000001", "soykb::align<x>:1.0", "mu")
    first["alternatives"].append(alternative("tacc", **NEVER))
    placements = [
        first,
        placement("ID0000002", "soykb::sort:1.0", "mu", "tacc"),
        placement("ID0000003", "soykb::merge:1.0", "tacc", "mu"),
    ]
    data: dict[str, Any] = {
        "planner": "embedded",
        "network": "simulated",
        "network_note": "The network is simulated: not root.",
        "workflow": "soykb",
        "state": "success",
        "jobs": 3,
        "dag_jobs": 5,
        "started": T0,
        "ended": T0 + 20,
        "mapping": {
            "policy": "greedy+search",
            "portfolio": {"greedy": 6.0, "random": 9.0, "one-site:local": None},
            "makespan_s": 6.0,
            "placements": placements,
            "beliefs": {"sites": {site: {} for site in (*SITES, "local")}},
        },
        "edges": [("ID0000001", "ID0000002"), ("ID0000002", "ID0000003")],
        "transits": [transit()],
        "bars": [
            Bar("stage_in_local_mu_0_0", "transfer", "local", T0 + 9, T0 + 10, T0 + 13, True),
            Bar("align_ID0000001", "compute", "mu", T0 + 14, T0 + 15, T0 + 17, True),
            Bar("merge_ID0000003", "compute", "tacc", T0 + 17, T0 + 18, T0 + 19, False),
            Bar("cleanup_soykb_0_mu", "other", "mu", T0 + 19, T0 + 19, T0 + 20, True),
        ],
        "status_records": 4,
        "open_reservations": 0,
        "flows_left": 0,
        "science": result(
            {
                "planted_snps": 300,
                "called_snps": 312,
                "found_snps": 300,
                "recall": 1.0,
                "precision": 0.96,
                "genotype_concordance": 0.9951,
            }
        ),
        "links": [
            {"a": "iplant", "b": "s2", "capacity_bps": 1e9, "layer": "lan"},
            {"a": "s2", "b": "s1", "capacity_bps": 200e6, "layer": "l2"},
        ],
        "samples": [LinkSample("s2", "s1", n * 1_000_000, T0 + 10 + n) for n in range(3)],
    }
    return DemoFacts(**(data | changes))


def taught(moved: int = 2, beliefs: int = 5) -> dict[str, Any]:
    """What measurements changed, in the form of site_selector.explain.text."""
    return {
        "makespan_s": {"before": 65.9, "after": 5.91},
        "moved": [
            {
                "job": f"ID{n:07}",
                "transformation": "soykb::sort:1.0",
                "before": "mu",
                "after": ("tacc", "iplant")[n % 2],
            }
            for n in range(moved)
        ],
        "beliefs": [
            {
                "what": ("Γ_a iplant>mu", "T_q mu", "N mu", "Γ_c soykb::sort:1.0@mu")[n % 4],
                "kind": ("rate", "seconds", "count", "bytes_rate")[n % 4],
                "before": estimate((2e8, 60.0, 2.0, 2e6)[n % 4]),
                "after": estimate(None if n == 4 else 3.0 + n, "archive", age_s=22.0),
            }
            for n in range(beliefs)
        ],
    }


def large(samples: int = 32, chromosomes: int = 14) -> DemoFacts:
    """A run of about 1,000 jobs at three sites for an hour, in the shape of SoyKB."""
    placements, edges, bars, transits = [], [], [], []

    def job(name: str, *parents: str) -> str:
        number = len(placements) + 1
        job_id = f"ID{number:07}"
        site = SITES[number % 3]
        others = [s for s in SITES if s != site]
        placements.append(placement(job_id, f"soykb::{name}:1.0", site, *others))
        edges.extend((p, job_id) for p in parents)
        start = T0 + number * 3.3
        bars.append(
            Bar(
                f"{name}_{job_id}",
                "compute",
                site,
                start - 60 - number % 50,
                start,
                start + 40,
                True,
            )
        )
        return job_id

    index = job("bwa_index")
    callers: list[list[str]] = [[] for _ in range(chromosomes)]
    for _ in range(samples):
        last = job("alignment_to_reference", index)
        for name in ("sort_sam", "dedup", "add_replace"):
            last = job(name, last)
        for chromosome in callers:
            chromosome.append(job("haplotype_caller", last, index))
    last = job("combine_variants", *[job("genotype_gvcfs", *c) for c in callers])
    for kind in ("snp", "indel"):
        job(f"filtering_{kind}", job(f"select_variants_{kind}", last))
    for chromosome in range(chromosomes):
        for n in range(samples):
            job("depth", callers[chromosome][n])
    for n in range(300):
        at = T0 + n * 11
        name = f"stage_in_local_mu_{n}_0"
        bars.append(Bar(name, "transfer", "local", at - 5, at, at + 20, True))
        transits.append(
            transit(id=f"wf:{n}", job=name, requested_at=at, installed_at=at, released_at=at + 25)
        )
    counters = [
        LinkSample(a, b, n * 2_500_000 + n % 7 * 1_000_000, T0 + n / 2)
        for a, b in (("s2", "s1"), ("s1", "s2"), ("s2", "iplant"), ("s1", "mu"))
        for n in range(0, 7200)
    ]
    jobs = len(placements)
    base = facts()
    mapping = {**base.mapping, "placements": placements}
    return facts(
        jobs=jobs, dag_jobs=jobs + 300, ended=T0 + 3600, mapping=mapping, edges=edges, bars=bars,
        transits=transits, samples=counters, taught=taught(jobs, 60), earlier_measurements=5000,
    )  # fmt: skip


def run_facts(**changes: Any) -> RunFacts:
    """The same run as nobody but its user knows it."""
    base = facts()
    names = RunFacts.__dataclass_fields__
    return RunFacts(**({name: getattr(base, name) for name in names} | changes))


def chains(number: int, depth: int = 4) -> RunFacts:
    """Chains of ``depth`` kinds of jobs; below each first job a transfer job fans out and in."""
    jobs, edges, bars = [DagJob("stage", "transfer", "local", shown=False)], [], []
    for n in range(number):
        name = f"job{n % depth}_ID{n:07}"
        jobs.append(DagJob(name, f"job{n % depth}", ("mu", "tacc")[n % 2]))
        if n % depth:
            edges.append((jobs[-2].job, name))
        if n % depth < 2:
            edges.append(("stage", name) if n % depth else (name, "stage"))
        bars.append(
            Bar(name, "compute", jobs[-1].site, T0 + n, T0 + n + 1, T0 + n + 9, n > 0, "a::job:1")
        )
    return run_facts(dag=jobs, edges=edges, bars=bars, jobs=number)
