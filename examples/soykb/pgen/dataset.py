"""One directory of made-up inputs, and the truth they were made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from examples.workflows.files import put
from pgen import ExampleError, genome, reads
from pgen.cohort import Cohort

FASTA_LINE = 80
VCF_COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT")
MIN_CHROMOSOME_BP = 10_000
MAX_CHROMOSOME_BP = 50_000_000
MAX_SAMPLE_BASES = 200_000_000  # all reads of a sample are made in memory: about 2 GB of it


@dataclass(frozen=True)
class Recipe:
    """What the data are made from; the same recipe gives the same bytes.

    ``snps`` and ``indels`` are totals over all chromosomes. Raises ExampleError if a value is
    out of range.
    """

    seed: int = 1
    chromosome_bp: int = 300_000
    coverage: float = 20.0
    snps: int = 900
    indels: int = 90

    def __post_init__(self) -> None:
        for value, low, high, what in (
            (self.seed, 0, 2**63 - 1, "seed"),
            (self.chromosome_bp, MIN_CHROMOSOME_BP, MAX_CHROMOSOME_BP, "chromosome-bp"),
            (self.coverage, 1, 200, "coverage"),
            (self.snps, 1, 10_000_000, "snps"),
            (self.indels, 0, 10_000_000, "indels"),
        ):
            if not low <= value <= high:
                raise ExampleError(f"{what}: found {value}, expected {low} to {high}")


def _share(total: int, parts: int, index: int) -> int:
    """Part ``index`` of ``total`` split as evenly as whole numbers go."""
    return total // parts + (index < total % parts)


def _fasta(chromosomes: Mapping[str, genome.Bases]) -> str:
    lines: list[str] = []
    for name, bases in chromosomes.items():
        letters = genome.text(bases)
        lines.append(f">{name}")
        lines += (letters[at : at + FASTA_LINE] for at in range(0, len(letters), FASTA_LINE))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Dataset:
    """A reference with its planted variants, in memory; reads are made when written."""

    cohort: Cohort
    recipe: Recipe
    chromosomes: Mapping[str, genome.Bases]
    variants: Mapping[str, list[genome.Variant]]

    def truth(self) -> str:
        """All planted variants with each sample's genotype, as VCF."""
        lines = ["##fileformat=VCFv4.2", "##source=makedata.py"]
        lines += (f"##contig=<ID={name},length={len(b)}>" for name, b in self.chromosomes.items())
        lines += [
            '##INFO=<ID=TYPE,Number=1,Type=String,Description="SNP or INDEL">',
            '##FORMAT=<ID=GT,Number=1,Type=String,Description="Planted genotype">',
            "\t".join([*VCF_COLUMNS, *self.cohort.samples]),
        ]
        for v in (v for name in self.cohort.chromosomes for v in self.variants[name]):
            calls = [f"{a}|{b}" for a, b in v.genotypes]
            fixed = [v.chromosome, str(v.position + 1), ".", v.ref, v.alt, ".", "PASS"]
            lines.append("\t".join([*fixed, f"TYPE={v.kind}", "GT", *calls]))
        return "\n".join(lines) + "\n"

    def reads(self, index: int) -> tuple[bytes, bytes]:
        """Both FASTQ files of the sample at ``index``, gzipped."""
        copies = [
            (
                genome.haplotype(bases, self.variants[name], index, 0),
                genome.haplotype(bases, self.variants[name], index, 1),
            )
            for name, bases in self.chromosomes.items()
        ]
        rng = np.random.default_rng([self.recipe.seed, 1, index])
        pairs = reads.simulate(rng, copies, self.recipe.coverage)
        sample = self.cohort.samples[index]
        return (
            reads.fastq_gz(sample, pairs.first, pairs.first_quality),
            reads.fastq_gz(sample, pairs.second, pairs.second_quality),
        )

    def write(self, inputs: Path, truth: Path) -> dict[str, int]:
        """The reference and reads into ``inputs``, the planted variants into ``truth``.

        Returns the size in bytes of each input file. Raises OSError; a file that could not be
        written whole is not left behind.
        """
        inputs.mkdir(parents=True, exist_ok=True)
        truth.mkdir(parents=True, exist_ok=True)
        put(inputs / self.cohort.fasta, _fasta(self.chromosomes).encode())
        for index, sample in enumerate(self.cohort.samples):
            for name, content in zip(self.cohort.reads(sample), self.reads(index), strict=True):
                put(inputs / name, content)
        put(truth / "truth.vcf", self.truth().encode())
        sizes = {name: (inputs / name).stat().st_size for name in self.cohort.inputs}
        described = {
            "samples": list(self.cohort.samples),
            "chromosomes": list(self.cohort.chromosomes),
            **asdict(self.recipe),
            "files": sizes,
        }
        put(truth / "dataset.json", (json.dumps(described, indent=2) + "\n").encode())
        return sizes


def plan(cohort: Cohort, recipe: Recipe) -> Dataset:
    """Draw the reference and its variants. Touches no file.

    Raises ExampleError if the variants do not fit into the chromosomes, or the reads of a
    sample not into memory.
    """
    bases = recipe.coverage * recipe.chromosome_bp * cohort.chromosomes_count
    if bases > MAX_SAMPLE_BASES:
        raise ExampleError(
            f"found {bases:,.0f} bases to sequence per sample, expected at most "
            f"{MAX_SAMPLE_BASES:,} (fewer chromosomes, shorter ones or less coverage)"
        )
    chromosomes, variants = {}, {}
    for i, name in enumerate(cohort.chromosomes):
        # A stream of its own: one chromosome more does not change the sequence of the others.
        rng = np.random.default_rng([recipe.seed, 0, i])
        chromosomes[name] = genome.random_chromosome(rng, recipe.chromosome_bp)
        variants[name] = genome.plant(
            rng,
            name,
            chromosomes[name],
            _share(recipe.snps, cohort.chromosomes_count, i),
            _share(recipe.indels, cohort.chromosomes_count, i),
            cohort.samples_count,
        )
    return Dataset(cohort, recipe, chromosomes, variants)
