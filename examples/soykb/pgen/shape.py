"""Sizes and run times that the workflow can state before it ever ran.

The factors were measured with run_local.py on the default data (see the README) and scale with
what drives them: sequenced bases, reference length, variants. They are estimates and are marked
so: only files that exist are declared to Pegasus with a size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pgen.cohort import Cohort
from pgen.dataset import FASTA_LINE, Recipe

# Bytes per sequenced base of a sample
FASTQ_GZ, SAM, BAM, GVCF_GZ = 0.282, 2.83, 0.389, 0.0717
# Bytes per base of reference, by the ending of bwa's index files
BWA_INDEX: Final[Mapping[str, float]] = {"bwt": 1.0, "pac": 0.25, "sa": 0.5}
BAI, TBI = 0.0032, 0.0008
MERGED_GVCF = 1.125  # of the gVCFs it is made of
VARIANT_BYTES, GENOTYPE_BYTES = 40, 5  # of compressed VCF: a record, and each sample's part in it
VCF_HEADER = 1_700
SMALL_BYTES = 200  # dictionaries, lists of chromosomes, indices of small files

# Seconds per million sequenced bases of a sample
ALIGN_S, SORT_S, DEDUP_S, ADD_REPLACE_S, CALL_S = 0.233, 0.064, 0.06, 0.06, 0.145
# Seconds per million bases of reference; genotyping and merging for each sample
BWA_INDEX_S, GENOTYPE_S, MERGE_GVCF_S = 0.23, 0.345, 0.77
LEAST_S = 0.01


def input_sizes(cohort: Cohort, recipe: Recipe) -> dict[str, int]:
    """Bytes that the inputs of ``recipe`` would have if they were made."""
    length = recipe.chromosome_bp
    lines = -(-length // FASTA_LINE)
    fasta = sum(len(name) + 2 + length + lines for name in cohort.chromosomes)
    reads = round(FASTQ_GZ * recipe.coverage * length * cohort.chromosomes_count)
    return {name: fasta if name == cohort.fasta else reads for name in cohort.inputs}


@dataclass(frozen=True)
class Estimate:
    """What is known about a run's files (``input_bytes``) and what can be guessed of the rest."""

    cohort: Cohort
    recipe: Recipe
    input_bytes: Mapping[str, int]

    @property
    def _genome_bp(self) -> int:
        return self.recipe.chromosome_bp * self.cohort.chromosomes_count

    @property
    def _sample_bases(self) -> float:
        return self.recipe.coverage * self._genome_bp

    def _vcf_bytes(self, variants: float) -> float:
        return VCF_HEADER + variants * (VARIANT_BYTES + GENOTYPE_BYTES * self.cohort.samples_count)

    def size_of(self, lfn: str) -> int:
        """Bytes expected of a file that a job makes, at least 1."""
        snps, indels = self.recipe.snps, self.recipe.indels
        gvcf = GVCF_GZ * self._sample_bases / self.cohort.chromosomes_count
        parts = self.cohort.samples_count * self.cohort.chromosomes_count
        # By ending; a later rule is more general than those before it.
        rules: tuple[tuple[str, float], ...] = (
            *((f"{self.cohort.fasta}.{end}", per * self._genome_bp)
              for end, per in BWA_INDEX.items()),
            (".sam", SAM * self._sample_bases),
            (".bam", BAM * self._sample_bases),
            (".bai", BAI * self._genome_bp),
            ("mergeGVCF.g.vcf.gz", MERGED_GVCF * gvcf * parts),
            (".g.vcf.gz", gvcf),
            (".g.vcf.gz.tbi", TBI * self.recipe.chromosome_bp),
            ("All.vcf.gz", self._vcf_bytes(snps + indels)),
            ("snp_only.vcf.gz", self._vcf_bytes(snps)),
            ("filtered_snp.vcf.gz", self._vcf_bytes(snps)),
            ("indel_only.vcf.gz", self._vcf_bytes(indels)),
            ("filtered_indel.vcf.gz", self._vcf_bytes(indels)),
            (".vcf.gz", self._vcf_bytes((snps + indels) / self.cohort.chromosomes_count)),
        )  # fmt: skip
        for ending, size in rules:
            if lfn.endswith(ending):
                return max(1, round(size))
        return SMALL_BYTES

    def runtimes_s(self) -> dict[str, float]:
        """Seconds expected of each transformation, on one core of a machine like a desktop's."""
        bases, genome = self._sample_bases / 1e6, self._genome_bp / 1e6
        chromosome = self.recipe.chromosome_bp / 1e6
        samples = self.cohort.samples_count
        known = {
            "bwa_index": BWA_INDEX_S * genome,
            "faidx": LEAST_S,
            "seq_dict": LEAST_S,
            "alignment_to_reference": ALIGN_S * bases,
            "sort_sam": SORT_S * bases,
            "dedup": DEDUP_S * bases,
            "add_replace": ADD_REPLACE_S * bases,
            "haplotype_caller": CALL_S * bases / self.cohort.chromosomes_count,
            "genotype_gvcfs": GENOTYPE_S * samples * chromosome,
            "merge_gvcf": MERGE_GVCF_S * samples * genome,
            "combine_variants": LEAST_S,
            "select_variants_snp": LEAST_S,
            "filtering_snp": LEAST_S,
            "select_variants_indel": LEAST_S,
            "filtering_indel": LEAST_S,
        }
        return {name: max(LEAST_S, seconds) for name, seconds in known.items()}
