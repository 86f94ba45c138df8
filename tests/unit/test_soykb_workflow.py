"""The workflow has PGen's shape, and its catalogs say where everything is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import soykb_rig
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pgen import ExampleError, shape, sites
from pgen.cohort import Cohort
from pgen.dataset import Recipe

from examples.workflows.files import as_yaml
from examples.workflows.jobs import SIZE_ESTIMATE

script = soykb_rig.load("workflow")

# Which transformation feeds which in PGen, as published runs of it show (WfCommons, SoyKB),
# with the preparation of the reference in front and without GATK's separate realignment.
PGEN = {
    ("bwa_index", "alignment_to_reference"),
    ("seq_dict", "alignment_to_reference"),
    ("alignment_to_reference", "sort_sam"),
    ("sort_sam", "dedup"),
    ("dedup", "add_replace"),
    ("add_replace", "haplotype_caller"),
    ("haplotype_caller", "merge_gvcf"),
    ("haplotype_caller", "genotype_gvcfs"),
    ("genotype_gvcfs", "combine_variants"),
    ("combine_variants", "select_variants_snp"),
    ("combine_variants", "select_variants_indel"),
    ("select_variants_snp", "filtering_snp"),
    ("select_variants_indel", "filtering_indel"),
    ("faidx", "haplotype_caller"),
    ("faidx", "genotype_gvcfs"),
    ("faidx", "merge_gvcf"),
}
ALL = {name for edge in PGEN for name in edge}


def described(samples: int, chromosomes: int) -> dict[str, Any]:
    cohort, recipe = Cohort(samples, chromosomes), Recipe()
    estimate = shape.Estimate(cohort, recipe, shape.input_sizes(cohort, recipe))
    return dict(yaml.safe_load(as_yaml(script.Pgen("soykb", cohort, estimate).build())))


def written(out: Path, *args: object, hash_seed: str = "0") -> dict[str, Any]:
    done = soykb_rig.run("workflow", "--out", out, "--no-data", *args, hash_seed=hash_seed)
    assert done.returncode == 0, done.stderr
    return {p.name: yaml.safe_load(p.read_text()) for p in out.glob("*.yml")}


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7))
def test_the_fan_out_is_that_of_the_original(samples: int, chromosomes: int) -> None:
    flow = described(samples, chromosomes)
    count = Counter(job["name"] for job in flow["jobs"])
    per_sample = {"alignment_to_reference", "sort_sam", "dedup", "add_replace"}
    assert count == {
        name: samples
        if name in per_sample
        else samples * chromosomes
        if name == "haplotype_caller"
        else chromosomes
        if name == "genotype_gvcfs"
        else 1
        for name in ALL
    }
    assert len(flow["jobs"]) == Cohort(samples, chromosomes).jobs


def test_the_edges_are_those_of_the_original() -> None:
    flow = described(3, 2)
    name = {job["id"]: job["name"] for job in flow["jobs"]}
    about = {job["id"]: job.get("metadata", {}) for job in flow["jobs"]}
    edges = [(link["id"], child) for link in flow["jobDependencies"] for child in link["children"]]
    assert {(name[a], name[b]) for a, b in edges} == PGEN
    for parent, child in edges:
        for key in ("sample", "chromosome"):
            if key in about[parent] and key in about[child]:
                assert about[parent][key] == about[child][key]


@pytest.mark.parametrize(
    ("samples", "chromosomes", "jobs"), [(3, 2, 29), (41, 20, 1013), (198, 1, 1000)]
)
def test_numbers_of_jobs_that_the_readme_states(samples: int, chromosomes: int, jobs: int) -> None:
    assert Cohort(samples, chromosomes).jobs == jobs
    readme = (soykb_rig.EXAMPLE / "README.md").read_text()
    assert f"| {samples} | {chromosomes} | {jobs:,} |" in readme


def test_a_job_names_only_files_it_uses_and_all_that_it_writes() -> None:
    flow = described(2, 2)
    files = {use["lfn"] for job in flow["jobs"] for use in job["uses"]}
    made = Counter(u["lfn"] for j in flow["jobs"] for u in j["uses"] if u["type"] == "output")
    assert set(made.values()) == {1}
    for job in flow["jobs"]:
        uses = {use["lfn"] for use in job["uses"]}
        words = [str(word) for word in job["arguments"]]
        assert {word for word in words if word in files} <= uses
        # Words are joined with blanks and split again on the way to the job.
        assert all(word and not set(word) & set(" \t\"'$") for word in words)
    read = {u["lfn"] for j in flow["jobs"] for u in j["uses"] if u["type"] == "input"}
    staged = {u["lfn"] for j in flow["jobs"] for u in j["uses"] if u.get("stageOut") is True}
    assert files == read | staged


def test_sizes_are_declared_for_inputs_and_only_estimated_for_the_rest() -> None:
    cohort = Cohort(2, 2)
    sizes = shape.input_sizes(cohort, Recipe())
    for job in described(2, 2)["jobs"]:
        for use in job["uses"]:
            if use["lfn"] in sizes:
                assert use["size"] == sizes[use["lfn"]]
            else:
                assert "size" not in use and "size" not in use["metadata"]
                assert int(use["metadata"][SIZE_ESTIMATE]) > 0


def test_sizes_without_data_are_near_those_of_data_made(tmp_path: Path) -> None:
    options = ("--samples", 1, "--chromosomes", 1, "--chromosome-bp", 50_000, "--snps", 50)
    assert soykb_rig.run("makedata", "--out", tmp_path, *options, "--indels", 5).returncode == 0
    recipe = Recipe(chromosome_bp=50_000, snps=50, indels=5)
    for name, guess in shape.input_sizes(Cohort(1, 1), recipe).items():
        assert guess == pytest.approx((tmp_path / "inputs" / name).stat().st_size, rel=0.05)


def test_the_same_options_write_the_same_files(tmp_path: Path) -> None:
    written(tmp_path / "a", hash_seed="1")
    before = {p.name: p.read_text() for p in (tmp_path / "a").iterdir()}
    written(tmp_path / "a", hash_seed="2")
    assert {p.name: p.read_text() for p in (tmp_path / "a").iterdir()} == before


def test_catalogs_describe_four_sites_and_every_program(tmp_path: Path) -> None:
    files = written(tmp_path)
    catalog = {site["name"]: site for site in files["sites.yml"]["sites"]}
    assert set(catalog) == {"iplant", "mu", "tacc", "local"}
    for name, site in catalog.items():
        pegasus = site["profiles"]["pegasus"]
        others = {key.rsplit(".", 1)[1] for key in pegasus if key.startswith("adon.bandwidth.")}
        assert others == set(catalog) - {name}
        assert {"adon.workers", "adon.rate", "adon.queue_wait"} <= set(pegasus)
        for directory in site["directories"]:
            (server,) = directory["fileServers"]
            assert server["url"].startswith("gsiftp://")
            assert server["url"].endswith(directory["path"])
        if name != "local":
            condor = site["profiles"]["condor"]
            assert condor["requirements"] == f'TARGET.PegasusSite == "{name}"'
    programs = files["transformations.yml"]["transformations"]
    assert {program["name"] for program in programs} == ALL
    for program in programs:
        at = {site["name"] for site in program["sites"]}
        assert at >= {"mu", "tacc"}
        assert ("iplant" in at) == program["name"].startswith(("combine", "select", "filter"))
    used = {(job["namespace"], job["version"]) for job in files["workflow.yml"]["jobs"]}
    assert used == {(program["namespace"], program["version"]) for program in programs}
    replicas = {r["lfn"]: r for r in files["replicas.yml"]["replicas"]}
    assert set(replicas) == set(Cohort(3, 2).inputs)
    for replica in replicas.values():
        assert [p["site"] for p in replica["pfns"]] == ["iplant"]
        assert int(replica["metadata"]["size"]) > 0


def bed(root: Path) -> dict[str, Any]:
    return {
        "network": "simulated",
        "root": str(root),
        "sites": {
            name: {
                "scratch": str(root / name / "scratch"),
                "storage": str(root / name / "storage"),
                "url": f"gsiftp://127.0.0.1:{2811 + n}",
                "workers": n + 1,
            }
            for n, name in enumerate(sites.SITES)
        },
        "transfer_env": {"X509_USER_PROXY": "/r/proxy", "PATH": "/r/bin:/usr/bin"},
        "tools_bin": "/r/tools",
    }


def test_where_pegasus_is_installed_stands_at_every_site(tmp_path: Path) -> None:
    path = tmp_path / "testbed.json"
    path.write_text(json.dumps(bed(tmp_path) | {"pegasus_home": "/opt/pegasus"}))
    places = sites.testbed_places(path)
    assert {place.env["PEGASUS_HOME"] for place in places.values()} == {"/opt/pegasus"}


def test_sites_that_are_folders_here_need_no_server_and_no_proxy(tmp_path: Path) -> None:
    files = written(tmp_path, "--here")
    known = {site["name"]: site for site in files["sites.yml"]["sites"]}
    assert known.keys() == set(sites.SITES)
    for name, site in known.items():
        assert site["profiles"]["pegasus"]["auxillary.local"] == "true"
        for directory in site["directories"]:
            assert directory["path"].startswith(f"{tmp_path}/sites/{name}/")
            (server,) = directory["fileServers"]
            assert server["url"] == f"file://{directory['path']}"
    for replica in files["replicas.yml"]["replicas"]:
        (copy,) = replica["pfns"]
        assert copy == {"site": "local", "pfn": f"file://{tmp_path}/inputs/{replica['lfn']}"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"transfer_env": {}, "tools_bin": "/b"}'])
def test_a_file_that_describes_no_test_bed_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "testbed.json"
    path.write_text(text)
    with pytest.raises(ExampleError, match=r"expected a testbed\.json"):
        sites.testbed_places(path)


@pytest.mark.parametrize(
    "args",
    [
        ("--samples", "0"),
        ("--chromosomes", "many"),
        ("--name", "../x"),
        ("--snps", "100000"),
        ("--testbed", "/nonexistent/testbed.json"),
        ("--colour", "red"),
    ],
)
def test_bad_options_are_one_line_status_2_and_nothing_made(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    done = soykb_rig.run("workflow", "--out", tmp_path / "out", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("workflow.py: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
