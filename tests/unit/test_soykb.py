"""SoyKB's example: its data, its programs, their check, and its workflow."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soykb_rig
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pgen import ExampleError, dataset, genome, reads, shape, sites
from pgen.cohort import Cohort, checked_name
from pgen.dataset import Recipe

from examples.workflows.files import as_yaml
from examples.workflows.jobs import SIZE_ESTIMATE

SMALL = dataset.Recipe(seed=3, chromosome_bp=20_000, coverage=5, snps=30, indels=10)


def reference(seed: int, length: int = 20_000) -> tuple[np.random.Generator, genome.Bases]:
    rng = np.random.default_rng(seed)
    return rng, genome.random_chromosome(rng, length)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(0, 60), st.integers(0, 60), st.integers(1, 6))
def test_planted_variants_can_be_found(seed: int, snps: int, indels: int, samples: int) -> None:
    rng, bases = reference(seed)
    planted = genome.plant(rng, "Chr01", bases, snps, indels, samples)
    assert [v.kind for v in planted].count("SNP") == snps
    assert [v.kind for v in planted].count("INDEL") == indels
    letters = genome.text(bases)
    for variant in planted:
        end = variant.position + len(variant.ref)
        assert letters[variant.position : end] == variant.ref != variant.alt
        assert genome.EDGE_BP <= variant.position < len(bases) - genome.EDGE_BP
        assert len(variant.genotypes) == samples
        assert any(1 in pair for pair in variant.genotypes)
        if variant.kind == "SNP":
            assert len(variant.ref) == len(variant.alt) == 1
        else:
            assert {len(variant.ref), len(variant.alt)} > {1}
            assert variant.ref[0] == variant.alt[0]
    starts = [v.position for v in planted]
    assert all(b - a >= genome.SPACING_BP for a, b in itertools.pairwise(starts))


def test_variants_that_do_not_fit_are_refused() -> None:
    rng, bases = reference(1)
    with pytest.raises(ExampleError, match="400 variants in a chromosome of 20000 bp"):
        genome.plant(rng, "Chr01", bases, 400, 0, 1)


def test_reads_cover_the_sample_and_err_as_their_qualities_say() -> None:
    rng, bases = reference(5, 100_000)
    pairs = reads.simulate(rng, [(bases, bases)], 20.0)
    expected = reads.pair_count(100_000, 20.0)
    assert expected <= len(pairs.first) <= expected * (1 + reads.DUPLICATE_FRACTION)
    letters = genome.text(bases)
    both = letters + genome.text((3 - bases)[::-1])
    perfect = sum(genome.text(row) in both for row in pairs.first[:300] if row.max() < 4)
    errors = 1 - (perfect / 300) ** (1 / reads.READ_BP)
    assert 0.001 < errors < 0.006
    assert set(np.unique(pairs.first_quality)) == set(reads.QUALITIES)
    assert (pairs.first[pairs.first_quality == reads.NO_CALL] == 4).all()
    # Errors grow along the read
    assert pairs.first_quality[:, :15].mean() > pairs.first_quality[:, -15:].mean()


def test_the_same_recipe_gives_the_same_bytes(tmp_path: Path) -> None:
    cohort = Cohort(2, 2)
    made = []
    for name in ("a", "b"):
        dataset.plan(cohort, SMALL).write(tmp_path / name / "in", tmp_path / name / "truth")
        made.append({p.name: p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()})
    assert made[0] == made[1]
    assert set(made[0]) == {*cohort.inputs, "truth.vcf", "dataset.json"}
    other = dataset.Recipe(**{**vars(SMALL), "seed": 4})
    dataset.plan(cohort, other).write(tmp_path / "c", tmp_path / "c")
    assert (tmp_path / "c" / cohort.fasta).read_bytes() != made[0][cohort.fasta]


def test_the_truth_lists_every_planted_variant(tmp_path: Path) -> None:
    made = dataset.plan(Cohort(3, 2), SMALL)
    sizes = made.write(tmp_path / "in", tmp_path)
    rows = [r.split("\t") for r in made.truth().splitlines() if not r.startswith("##")]
    assert rows[0][9:] == ["SOY-001", "SOY-002", "SOY-003"]
    assert len(rows) - 1 == SMALL.snps + SMALL.indels
    assert sizes == {p.name: p.stat().st_size for p in (tmp_path / "in").iterdir()}
    fasta = (tmp_path / "in" / "Gmax_toy.fa").read_text().split(">")[1:]
    chromosomes = {c.split("\n", 1)[0]: c.split("\n", 1)[1].replace("\n", "") for c in fasta}
    for row in rows[1:]:
        start = int(row[1]) - 1
        assert chromosomes[row[0]][start : start + len(row[3])] == row[3]
    head = gzip.decompress((tmp_path / "in" / "SOY-003_2.fastq.gz").read_bytes())[:17]
    assert head == b"@SOY-003:00000000"


def test_one_chromosome_more_leaves_the_others_as_they_were() -> None:
    few = dataset.plan(Cohort(1, 1), dataset.Recipe(snps=10, indels=0, chromosome_bp=20_000))
    more = dataset.plan(Cohort(1, 2), dataset.Recipe(snps=20, indels=0, chromosome_bp=20_000))
    assert (few.chromosomes["Chr01"] == more.chromosomes["Chr01"]).all()
    assert few.variants["Chr01"] == more.variants["Chr01"]


def test_a_file_that_cannot_be_written_whole_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        dataset.put(tmp_path / "taken", b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("chromosome_bp", 9_999), ("coverage", 0), ("snps", 0), ("indels", -1), ("seed", -1)],
)
def test_recipes_out_of_range_are_refused(field: str, value: int) -> None:
    with pytest.raises(ExampleError, match=f"found {value}, expected"):
        dataset.Recipe(**{field: value})


def test_data_that_do_not_fit_into_memory_are_refused() -> None:
    with pytest.raises(ExampleError, match="bases to sequence per sample"):
        dataset.plan(Cohort(1, 20), dataset.Recipe(chromosome_bp=1_000_000))


def test_counts_and_names_out_of_range_are_refused() -> None:
    with pytest.raises(ExampleError, match="samples: found 0"):
        Cohort(0, 1)
    with pytest.raises(ExampleError, match="chromosomes: found 1000"):
        Cohort(1, 1000)
    for name in ("", "a b", "../a", "-x", "a" * 64):
        with pytest.raises(ExampleError, match="name: found"):
            checked_name(name, "name")


def test_makedata_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    done = soykb_rig.run("makedata", "--out", tmp_path / "x", "--coverage", "nan")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "makedata.py: coverage: found nan, expected 1 to 200\n"
    assert not (tmp_path / "x").exists()


TOOLS = sorted(p for p in (soykb_rig.EXAMPLE / "tools").iterdir() if os.access(p, os.X_OK))
FILES = ["a.fa", "b", "c", "d", "e", "f", "g", "h"]


def call(tool: Path, cwd: Path, *args: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tool), *args],
        cwd=cwd,
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what a shell needs and none of the workflow's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "dirname", "rm"):
        (folder / name).symlink_to(f"/bin/{name}" if name != "dirname" else "/usr/bin/dirname")
    return str(folder)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda p: p.name)
def test_a_missing_program_is_named(tool: Path, tmp_path: Path, bare_path: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = call(tool, work, *FILES, path=bare_path)
    assert done.returncode == 127
    assert done.stderr.startswith(f"{tool.name}: ") and done.stderr.count("\n") == 1
    assert "is not on PATH" in done.stderr
    assert not list(work.iterdir())


@pytest.mark.parametrize("tool", TOOLS, ids=lambda p: p.name)
def test_too_few_arguments_are_refused(tool: Path, tmp_path: Path, bare_path: str) -> None:
    done = call(tool, tmp_path, path=bare_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tool.name}: found 0 arguments, expected: ")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda p: p.name)
def test_a_missing_input_is_named(tool: Path, tmp_path: Path, bare_path: str) -> None:
    for name in ("bwa", "samtools", "bcftools"):
        program = Path(bare_path) / name
        program.write_text("#!/bin/bash\necho must not run >&2\nexit 9\n")
        program.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    arguments = ["a.fa", "b", "--chromosome", "d"] if tool.name == "merge_gvcf" else FILES
    done = call(tool, work, *arguments, path=bare_path)
    assert done.returncode == 66
    assert "is missing or empty" in done.stderr and done.stderr.count("\n") == 1
    assert not list(work.iterdir())


check = soykb_rig.load("check")

HEAD = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tA\tB\n"


def row(pos: int, alt: str = "C", passed: str = "PASS", ref: str = "A", calls: str = "") -> str:
    calls = calls or "0/1:9\t0/0:9"
    return f"Chr01\t{pos}\t.\t{ref}\t{alt}\t50\t{passed}\t.\tGT:GQ\t{calls}\n"


def vcf(path: Path, *rows: str) -> Path:
    text = HEAD + "".join(rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_reads_passed_snps_only(tmp_path: Path) -> None:
    calls = vcf(
        tmp_path / "a.vcf.gz",
        row(1),
        row(2, passed="."),
        row(3, passed="my_snp_filter"),
        row(4, ref="AC", alt="A"),
        row(5, alt="AT"),
        row(6, alt="C,T", calls="1|2\t./."),
        row(7, alt="*"),
    )
    assert check.snps(calls) == {
        ("Chr01", 1, "A", "C"): {"A": 1, "B": 0},
        ("Chr01", 2, "A", "C"): {"A": 1, "B": 0},
        ("Chr01", 6, "A", "C"): {"A": 1, "B": None},
        ("Chr01", 6, "A", "T"): {"A": 1, "B": None},
    }


def snp(position: int) -> tuple[str, int, str, str]:
    return ("Chr01", position, "A", "C")


@given(st.sets(st.integers(1, 60), min_size=1), st.sets(st.integers(1, 60)))
def test_recall_and_precision_are_shares_of_the_same_hits(
    planted: set[int], called: set[int]
) -> None:
    figures = check.compare({snp(p): {"A": 1} for p in planted}, {snp(p): {"A": 1} for p in called})
    hits = len(planted & called)
    assert figures["found_snps"] == hits
    assert figures["recall"] * len(planted) == pytest.approx(hits)
    assert figures["precision"] * len(called) == pytest.approx(hits)
    assert figures["genotype_concordance"] == (1.0 if hits else 0.0)


def test_another_base_at_the_same_place_is_no_hit() -> None:
    figures = check.compare({snp(1): {"A": 1}}, {("Chr01", 1, "A", "G"): {"A": 1}})
    assert (figures["recall"], figures["precision"]) == (0.0, 0.0)


def test_concordance_counts_each_sample() -> None:
    truth = {snp(1): {"A": 1, "B": 2}}
    figures = check.compare(truth, {snp(1): {"A": 1, "B": None}})
    assert figures["genotype_concordance"] == 0.5


@pytest.mark.parametrize(
    ("missed", "wrong", "status"), [(0, 0, 0), (1, 3, 0), (2, 0, 1), (0, 4, 1), (100, 0, 1)]
)
def test_the_exit_status_says_whether_the_thresholds_held(
    tmp_path: Path, missed: int, wrong: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = vcf(tmp_path / "truth.vcf", *(row(p) for p in range(1, 101)))
    rows = [row(p) for p in range(1, 101 - missed)] + [row(p) for p in range(500, 500 + wrong)]
    calls = vcf(tmp_path / "calls.vcf.gz", *rows)
    assert check.main(["--truth", str(truth), "--calls", str(calls)]) == status
    figures = json.loads(capsys.readouterr().out)
    assert figures["planted_snps"] == 100
    assert figures["recall"] == pytest.approx(1 - missed / 100)


BAD = {
    "missing": None,
    "empty": b"",
    "no header": row(1).encode(),
    "short record": (HEAD + "Chr01\t1\t.\n").encode(),
    "bad position": HEAD.encode() + row(1).replace("\t1\t", "\tx\t", 1).encode(),
    "cut gzip": gzip.compress((HEAD + row(1) * 99).encode())[:-12],
    "damaged gzip": b"\x1f\x8b" + b"x" * 40,
    "no text": b"\xff\xfe\x00" * 9,
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_read_is_one_line_and_status_2(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = vcf(tmp_path / "truth.vcf", row(1))
    calls = tmp_path / "calls.vcf.gz"
    content = BAD[kind]
    if content is not None:
        calls.write_bytes(content)
    assert check.main(["--truth", str(truth), "--calls", str(calls)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("check.py: ") and printed.err.count("\n") == 1
    assert str(calls) in printed.err


def test_a_truth_without_snps_is_refused(tmp_path: Path) -> None:
    empty = vcf(tmp_path / "t.vcf")
    assert check.main(["--truth", str(empty), "--calls", str(empty)]) == 2


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
