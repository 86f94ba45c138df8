"""Workflows, catalogs and beliefs for the tests of site selection, written out as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from monitors.base.estimates import Estimate
from site_selector.catalogs.documents import parse_document
from site_selector.catalogs.entries import replicas_of, sites_of, transformations_of
from site_selector.catalogs.workflow import parse_workflow
from site_selector.inputs import Inputs, check_inputs


def estimate_of(value: float, at: float = 900.0, spread: float = 0.0, count: int = 3) -> Estimate:
    """What an archive would answer."""
    return Estimate(value, spread, count, at, "test")


class Measurements:
    """A measurement source made of a dictionary {(metric, subject): estimate}."""

    def __init__(self, known: Mapping[tuple[str, str], Estimate]) -> None:
        self.known = known

    def estimate(self, metric: str, subject: str, now: float) -> Estimate | None:
        measurement = self.known.get((metric, subject))
        return measurement if measurement is not None and measurement.at <= now else None


def job(
    job_id: str,
    name: str,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    sizes: Mapping[str, int] | None = None,
    keep: Sequence[str] = (),
    **profiles: Mapping[str, object],
) -> dict[str, object]:
    """A job entry; files in ``keep`` are not staged out."""
    sizes = sizes or {}

    def use(lfn: str, kind: str) -> dict[str, object]:
        entry: dict[str, object] = {"lfn": lfn, "type": kind}
        if lfn in sizes:
            entry["size"] = sizes[lfn]
        if kind == "output":
            entry |= {"stageOut": lfn not in keep, "registerReplica": False}
        return entry

    entry: dict[str, object] = {
        "type": "job",
        "namespace": "t",
        "name": name,
        "version": "1.0",
        "id": job_id,
        "arguments": [],
        "uses": [use(f, "input") for f in reads] + [use(f, "output") for f in writes],
    }
    if profiles:
        entry["profiles"] = dict(profiles)
    return entry


def workflow_text(
    jobs: Sequence[Mapping[str, object]], edges: Mapping[str, Sequence[str]] | None = None
) -> str:
    root: dict[str, object] = {"pegasus": "5.0.4", "name": "w", "jobs": [dict(j) for j in jobs]}
    if edges:
        root["jobDependencies"] = [{"id": p, "children": list(c)} for p, c in edges.items()]
    return yaml.safe_dump(root, sort_keys=False)


def without_waits(sites: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Sites where jobs wait for nothing, which is easier by hand, where a test gives no wait; None
    leaves it unknown."""
    filled = {name: {"adon.queue_wait": "0 s", **profiles} for name, profiles in sites.items()}
    return {
        name: {key: value for key, value in profiles.items() if value is not None}
        for name, profiles in filled.items()
    }


def sites_text(hints: Mapping[str, Mapping[str, object]]) -> str:
    """Sites by name with their pegasus profiles."""
    sites = []
    for name, profiles in hints.items():
        server = {"url": f"gsiftp://{name}/scratch", "operation": "all"}
        scratch = {"type": "sharedScratch", "path": f"/{name}/scratch", "fileServers": [server]}
        site = {"name": name, "arch": "x86_64", "os.type": "linux", "directories": [scratch]}
        sites.append({**site, "profiles": {"pegasus": dict(profiles)}})
    return yaml.safe_dump({"pegasus": "5.0.4", "sites": sites}, sort_keys=False)


def replicas_text(replicas: Mapping[str, tuple[str, int | None]]) -> str:
    """{lfn: (site, bytes or None)}."""
    entries = []
    for lfn, (site, size) in replicas.items():
        entry: dict[str, object] = {"lfn": lfn, "pfns": [{"site": site, "pfn": f"/data/{lfn}"}]}
        if size is not None:
            entry["metadata"] = {"size": size}
        entries.append(entry)
    return yaml.safe_dump({"pegasus": "5.0.4", "replicas": entries}, sort_keys=False)


def transformations_text(
    where: Mapping[str, Sequence[str]], runtimes: Mapping[str, float] | None = None
) -> str:
    """{name: sites}, all installed, with ``pegasus: runtime`` where given."""
    entries = []
    for name, sites in where.items():
        entry: dict[str, object] = {
            "namespace": "t",
            "name": name,
            "version": "1.0",
            "sites": [
                {"name": s, "pfn": f"/opt/{name}", "type": "installed", "arch": "x86_64"}
                for s in sites
            ],
        }
        if runtimes and name in runtimes:
            entry["profiles"] = {"pegasus": {"runtime": str(runtimes[name])}}
        entries.append(entry)
    return yaml.safe_dump({"pegasus": "5.0.4", "transformations": entries}, sort_keys=False)


def inputs_from(
    workflow: str, sites: str, replicas: str, transformations: str, **options: Sequence[str]
) -> Inputs:
    """Inputs from four texts."""
    return check_inputs(
        parse_workflow(workflow),
        sites_of(parse_document(sites, "sites.yml", "site catalog")),
        replicas_of(parse_document(replicas, "replicas.yml", "replica catalog")),
        transformations_of(
            parse_document(transformations, "transformations.yml", "transformation catalog")
        ),
        **options,
    )


def inputs_of(
    jobs: Sequence[Mapping[str, object]],
    sites: Mapping[str, Mapping[str, object]],
    held: Mapping[str, tuple[str, int | None]],
    where: Mapping[str, Sequence[str]],
    runtimes: Mapping[str, float] | None = None,
) -> Inputs:
    """Inputs from jobs, the sites' profiles, where files lie, and where programs run."""
    return inputs_from(
        workflow_text(jobs),
        sites_text(without_waits(sites)),
        replicas_text(held),
        transformations_text(where, runtimes),
    )


def write_all(folder: Path, workflow: str, sites: str, replicas: str, transformations: str) -> Path:
    """Write the four files under their usual names; returns the workflow's path."""
    for name, text in (
        ("sites", sites),
        ("replicas", replicas),
        ("transformations", transformations),
        ("workflow", workflow),
    ):
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    return folder / "workflow.yml"


def resequencing(
    samples: int, chromosomes: int, sites: Mapping[str, Mapping[str, object]], store: str
) -> tuple[str, str, str, str]:
    """A small SoyKB-like workflow: align, sort, call per chromosome, joint genotyping, gather."""
    jobs = []
    replicas: dict[str, tuple[str, int | None]] = {"ref": (store, 10_000_000)}
    for s in range(samples):
        replicas[f"{s}.fq"] = (store, 200_000_000 + s * 1_000_000)
        jobs.append(job(f"align{s}", "align", ["ref", f"{s}.fq"], [f"{s}.bam"], keep=[f"{s}.bam"]))
        jobs.append(job(f"sort{s}", "sort", [f"{s}.bam"], [f"{s}.srt"], keep=[f"{s}.srt"]))
        for c in range(chromosomes):
            out = f"{s}.{c}.gvcf"
            jobs.append(job(f"call{s}_{c}", "call", ["ref", f"{s}.srt"], [out], keep=[out]))
    for c in range(chromosomes):
        gvcfs = [f"{s}.{c}.gvcf" for s in range(samples)]
        jobs.append(job(f"joint{c}", "joint", ["ref", *gvcfs], [f"{c}.vcf"], keep=[f"{c}.vcf"]))
    jobs.append(job("gather", "gather", [f"{c}.vcf" for c in range(chromosomes)], ["all.vcf"]))
    names = ("align", "sort", "call", "joint", "gather")
    runtimes = {"align": 300.0, "sort": 60.0, "call": 120.0, "joint": 200.0, "gather": 20.0}
    return (
        workflow_text(jobs),
        sites_text(without_waits(sites)),
        replicas_text(replicas),
        transformations_text({name: list(sites) for name in names}, runtimes),
    )


NOW = 1000.0
HINTS: dict[str, dict[str, object]] = {
    "mu": {"adon.workers": 8, "adon.queue_wait": "30 s", "adon.bandwidth.tacc": "200 Mb/s"},
    "tacc": {"adon.rate": "40 MB/s", "adon.queue_wait": None},
    "local": {"adon.workers": 0},
}


def world_inputs(
    hints: dict[str, dict[str, object]] | None = None, runtimes: dict[str, float] | None = None
) -> Inputs:
    sites = HINTS if hints is None else hints
    jobs = [job("x", "a", ["f"], ["g"]), job("y", "a", ["g"], ["h"])]
    return inputs_of(jobs, sites, {"f": ("mu", 100_000_000)}, {"a": list(sites)}, runtimes)
