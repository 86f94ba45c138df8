"""The example's programs find what was planted, with Debian's bwa, samtools and bcftools."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from adon.machine import packages

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "soykb"

pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    wrap = packages.ensure("bio", progress=lambda line: None) / "wrap"
    return {**os.environ, "PATH": f"{wrap}:/usr/bin:/bin"}


def script(
    environment: dict[str, str], name: str, *args: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE / f"{name}.py"), *map(str, args)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def run(environment: dict[str, str], out: Path, *options: object) -> dict[str, float]:
    """Make, run and check a whole workflow; returns check.py's figures."""
    made = script(environment, "workflow", "--out", out, *options)
    assert made.returncode == 0, made.stderr
    ran = script(
        environment,
        "run_local",
        *("--workflow", out / "workflow.yml"),
        *("--inputs", out / "inputs"),
        *("--work", out / "work"),
        *("--report", out / "report.json"),
    )
    assert ran.returncode == 0, ran.stderr
    checked = script(
        environment,
        "check",
        *("--truth", out / "truth" / "truth.vcf"),
        *("--calls", out / "work" / "All.filtered_snp.vcf.gz"),
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return dict(json.loads(checked.stdout))


@pytest.fixture(scope="module")
def finished(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest data that the project promises thresholds for."""
    out = tmp_path_factory.mktemp("soykb")
    run(environment, out, "--chromosome-bp", 100_000, "--snps", 300, "--indels", 30)
    return out


def records(path: Path) -> list[list[str]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [line.split("\t") for line in text.decode().splitlines() if not line.startswith("#")]


@pytest.mark.long
def test_planted_snps_are_found_in_every_sample(
    finished: Path, environment: dict[str, str]
) -> None:
    checked = script(
        environment,
        "check",
        *("--truth", finished / "truth" / "truth.vcf"),
        *("--calls", finished / "work" / "All.filtered_snp.vcf.gz"),
    )
    figures = json.loads(checked.stdout)
    assert figures["planted_snps"] == 300
    assert figures["recall"] >= 0.99
    assert figures["precision"] >= 0.97
    assert figures["genotype_concordance"] >= 0.99


@pytest.mark.long
def test_planted_indels_are_found(finished: Path) -> None:
    planted = {
        (r[0], r[1], r[3], r[4])
        for r in records(finished / "truth" / "truth.vcf")
        if r[7] == "TYPE=INDEL"
    }
    called = {
        (r[0], r[1], r[3], r[4])
        for r in records(finished / "work" / "All.filtered_indel.vcf.gz")
        if r[6] == "PASS"
    }
    assert len(planted) == 30
    assert len(planted & called) >= 0.9 * len(planted)
    assert len(planted & called) >= 0.9 * len(called)


@pytest.mark.long
def test_duplicates_are_marked_and_read_groups_complete(
    finished: Path, environment: dict[str, str]
) -> None:
    def samtools(*args: object) -> str:
        return subprocess.run(
            ["samtools", *map(str, args)],
            env=environment,
            cwd=finished / "work",
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    bam = "SOY-002.addrepl.bam"
    reads, marked = int(samtools("view", "-c", bam)), int(samtools("view", "-c", "-f", 1024, bam))
    assert 0.02 < marked / reads < 0.04
    header = samtools("view", "-H", bam)
    (group,) = [line for line in header.splitlines() if line.startswith("@RG")]
    assert {"ID:SOY-002", "SM:SOY-002", "LB:SOY-002", "PL:ILLUMINA"} <= set(group.split("\t"))
    assert header.count("\tM5:") == 2
    assert "RG:Z:SOY-002" in samtools("view", bam).split("\n", 1)[0]


@pytest.mark.long
def test_estimated_sizes_are_of_the_right_order(finished: Path) -> None:
    sizes = json.loads((finished / "report.json").read_text())["files"]
    flow = yaml.safe_load((finished / "workflow.yml").read_text())
    guesses = {
        use["lfn"]: int(use["metadata"]["adon.size_estimate"])
        for job in flow["jobs"]
        for use in job["uses"]
        if use["type"] == "output"
    }
    assert guesses.keys() <= sizes.keys()
    big = {lfn: (guess, sizes[lfn]) for lfn, guess in guesses.items() if sizes[lfn] > 1_000}
    assert not {lfn: pair for lfn, pair in big.items() if not 0.6 < pair[0] / pair[1] < 1.7}


def test_one_sample_of_one_chromosome_works_too(
    environment: dict[str, str], tmp_path: Path
) -> None:
    figures = run(
        environment,
        tmp_path,
        *("--samples", 1, "--chromosomes", 1, "--chromosome-bp", 50_000),
        *("--snps", 75, "--indels", 0, "--seed", 9, "--coverage", 30),
    )
    assert figures["planted_snps"] == 75


@pytest.mark.long
def test_a_failing_job_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    options = ("--samples", 1, "--chromosomes", 1, "--chromosome-bp", 10_000, "--snps", 5)
    made = script(environment, "workflow", "--out", tmp_path, *options, "--indels", 0)
    assert made.returncode == 0, made.stderr
    (tmp_path / "inputs" / "SOY-001_2.fastq.gz").unlink()
    ran = script(
        environment,
        "run_local",
        *("--workflow", tmp_path / "workflow.yml"),
        *("--inputs", tmp_path / "inputs"),
        *("--work", tmp_path / "work"),
    )
    assert ran.returncode == 1
    assert "alignment_to_reference: exit status 66" in ran.stderr
    assert ran.stderr.count("\n") == 1
