"""The made-up data are what they say: variants that can be found, reads with honest qualities."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
import soykb_rig
from hypothesis import given, settings
from hypothesis import strategies as st
from pgen import ExampleError, dataset, genome, reads
from pgen.cohort import Cohort, checked_name

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
