"""The size of a run: samples, chromosomes, the names of files, and the jobs that follow.

Pure: nothing here reads or writes files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgen import ExampleError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
REFERENCE_PREPARATION_JOBS = 3  # bwa_index, faidx, seq_dict
SAMPLE_JOBS = 4  # alignment_to_reference, sort_sam, dedup, add_replace
CLOSING_JOBS = 6  # merge_gvcf, combine_variants, select and filter SNPs and INDELs
MAX_SAMPLES = 999
MAX_CHROMOSOMES = 999


def checked_name(value: str, what: str) -> str:
    """``value`` if it can be part of a file name, an LFN and a DAGMan node; else ExampleError."""
    if NAME.fullmatch(value) is None:
        raise ExampleError(
            f"{what}: found {value!r}, expected a letter followed by at most 62 letters, digits, "
            "'_', '-' or '.'"
        )
    return value


@dataclass(frozen=True)
class Cohort:
    """Samples S and chromosomes C of one workflow.

    Raises ExampleError if a count is not between 1 and its maximum.
    """

    samples_count: int
    chromosomes_count: int
    reference: str = "Gmax_toy"

    def __post_init__(self) -> None:
        for value, most, what in (
            (self.samples_count, MAX_SAMPLES, "samples"),
            (self.chromosomes_count, MAX_CHROMOSOMES, "chromosomes"),
        ):
            if not 1 <= value <= most:
                raise ExampleError(f"{what}: found {value}, expected a number from 1 to {most}")

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(f"SOY-{n:03d}" for n in range(1, self.samples_count + 1))

    @property
    def chromosomes(self) -> tuple[str, ...]:
        width = max(2, len(str(self.chromosomes_count)))
        return tuple(f"Chr{n:0{width}d}" for n in range(1, self.chromosomes_count + 1))

    @property
    def fasta(self) -> str:
        return f"{self.reference}.fa"

    @property
    def dictionary(self) -> str:
        return f"{self.reference}.dict"

    def reads(self, sample: str) -> tuple[str, str]:
        """The two FASTQ files of a sample."""
        return f"{sample}_1.fastq.gz", f"{sample}_2.fastq.gz"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every file that must be there before the first job: the reference and the raw reads."""
        return (self.fasta, *self.raw_reads)

    @property
    def raw_reads(self) -> tuple[str, ...]:
        """The FASTQ files of all samples."""
        return tuple(name for sample in self.samples for name in self.reads(sample))

    @property
    def jobs(self) -> int:
        """How many jobs the workflow has: 9 + 4·S + S·C + C."""
        s, c = self.samples_count, self.chromosomes_count
        return REFERENCE_PREPARATION_JOBS + SAMPLE_JOBS * s + s * c + c + CLOSING_JOBS
