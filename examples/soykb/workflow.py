#!/usr/bin/env python3
"""Write SoyKB's resequencing workflow (PGen) with its catalogs, and make its data.

    workflow.py --out DIR [--samples 3] [--chromosomes 2] [--seed 1] [--here | --testbed FILE]
    workflow.py --out DIR --samples 41 --chromosomes 20 --no-data        # 1,013 jobs

DIR gets workflow.yml, sites.yml, replicas.yml, transformations.yml, pegasus.properties and truth/.
The catalogs name example hosts and the data go to DIR/inputs; with --here the sites are folders
below DIR; with --testbed they are those of testbed.json and the data go to its data store.
--no-data declares the sizes such data would have instead of making them. S samples and C
chromosomes make 9 + 4·S + S·C + C jobs. The same options give the same files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from Pegasus.api import Workflow
from pgen import ExampleError, Parser, dataset, options, shape, site_estimates, sites
from pgen.cohort import Cohort, checked_name

from examples.workflows import catalogs, zones
from examples.workflows.files import sha256, write_plan
from examples.workflows.jobs import Jobs

# Phred 3 is even odds: a SNP stays when the caller holds it for more likely real than not.
SNP_FILTER = ("--min-qual", 3, "--min-mq", 40)
INDEL_FILTER = ("--min-qual", 20, "--min-mq", 40, "--min-support", 0.2)
BWA_INDEX = ("amb", "ann", "bwt", "pac", "sa")


class Pgen(Jobs):
    """The workflow's jobs. Dependencies follow from the files that jobs share.

    Files are named as PGen names them: SAMPLE.sam, SAMPLE.sorted.bam, SAMPLE.CHROMOSOME.g.vcf.gz.
    """

    def __init__(self, name: str, cohort: Cohort, estimate: shape.Estimate) -> None:
        inputs = {lfn: estimate.input_bytes[lfn] for lfn in cohort.inputs}
        super().__init__(name, site_estimates.NAMESPACE, inputs, estimate.size_of)
        self.cohort = cohort
        self.workflow.add_metadata(
            project="soykb", samples=cohort.samples_count, chromosomes=cohort.chromosomes_count
        )

    def prepare_reference(self) -> None:
        fasta, dictionary = self.cohort.fasta, self.cohort.dictionary
        self.job("bwa_index", (fasta,), (fasta,), self.bwa_index)
        self.job("faidx", (fasta,), (fasta,), (f"{fasta}.fai",))
        self.job("seq_dict", (fasta, dictionary), (fasta,), (dictionary,))

    @property
    def bwa_index(self) -> tuple[str, ...]:
        return tuple(f"{self.cohort.fasta}.{end}" for end in BWA_INDEX)

    def align(self, sample: str) -> None:
        fasta, dictionary = self.cohort.fasta, self.cohort.dictionary
        first, second = self.cohort.reads(sample)
        sam, ordered = f"{sample}.sam", f"{sample}.sorted.bam"
        deduped, bam = f"{sample}.dedup.bam", f"{sample}.addrepl.bam"
        self.job(
            "alignment_to_reference",
            (fasta, dictionary, sample, first, second, sam),
            (fasta, dictionary, *self.bwa_index, first, second),
            (sam,),
            sample=sample,
        )
        self.job("sort_sam", (sam, ordered), (sam,), (ordered,), sample=sample)
        self.job("dedup", (ordered, deduped), (ordered,), (deduped,), sample=sample)
        self.job(
            "add_replace",
            (sample, deduped, bam),
            (deduped,),
            (bam, f"{bam}.bai"),
            sample=sample,
        )

    def call(self, sample: str, chromosome: str) -> None:
        fasta, bam = self.cohort.fasta, f"{sample}.addrepl.bam"
        gvcf = f"{sample}.{chromosome}.g.vcf.gz"
        self.job(
            "haplotype_caller",
            (fasta, chromosome, bam, gvcf),
            (fasta, f"{fasta}.fai", bam, f"{bam}.bai"),
            (gvcf, f"{gvcf}.tbi"),
            sample=sample,
            chromosome=chromosome,
        )

    def _gvcfs(self, chromosome: str) -> tuple[str, ...]:
        return tuple(f"{sample}.{chromosome}.g.vcf.gz" for sample in self.cohort.samples)

    def genotype(self, chromosome: str) -> None:
        fasta, gvcfs = self.cohort.fasta, self._gvcfs(chromosome)
        vcf = f"GVCF.{chromosome}.vcf.gz"
        self.job(
            "genotype_gvcfs",
            (fasta, vcf, *gvcfs),
            (fasta, f"{fasta}.fai", *gvcfs, *(f"{name}.tbi" for name in gvcfs)),
            (vcf,),
            chromosome=chromosome,
        )

    def gather(self) -> None:
        fasta, chromosomes = self.cohort.fasta, self.cohort.chromosomes
        grouped: list[str] = []
        gvcfs: list[str] = []
        for chromosome in chromosomes:
            grouped += ["--chromosome", *self._gvcfs(chromosome)]
            gvcfs += self._gvcfs(chromosome)
        cohort_gvcf = "mergeGVCF.g.vcf.gz"
        self.job(
            "merge_gvcf",
            (fasta, cohort_gvcf, *grouped),
            (fasta, f"{fasta}.fai", *gvcfs, *(f"{name}.tbi" for name in gvcfs)),
            (cohort_gvcf, f"{cohort_gvcf}.tbi"),
            publish=True,
        )
        parts = tuple(f"GVCF.{chromosome}.vcf.gz" for chromosome in chromosomes)
        self.job("combine_variants", ("All.vcf.gz", *parts), parts, ("All.vcf.gz",))

    def select_and_filter(self, kind: str, limits: tuple[str | float, ...]) -> None:
        only, filtered = f"All.{kind}_only.vcf.gz", f"All.filtered_{kind}.vcf.gz"
        self.job(f"select_variants_{kind}", ("All.vcf.gz", only), ("All.vcf.gz",), (only,))
        self.job(
            f"filtering_{kind}",
            (only, filtered, *limits),
            (only,),
            (filtered, f"{filtered}.tbi"),
            publish=True,
        )

    def build(self) -> Workflow:
        self.prepare_reference()
        for sample in self.cohort.samples:
            self.align(sample)
            for chromosome in self.cohort.chromosomes:
                self.call(sample, chromosome)
        for chromosome in self.cohort.chromosomes:
            self.genotype(chromosome)
        self.gather()
        self.select_and_filter("snp", SNP_FILTER)
        self.select_and_filter("indel", INDEL_FILTER)
        return self.workflow


def write(chosen: argparse.Namespace) -> str:
    """Do what the options say; returns one sentence about it. Raises ExampleError, OSError."""
    name = checked_name(chosen.name, "name")
    cohort, recipe = options.read(chosen)
    out: Path = chosen.out.resolve()
    store = sites.DATA_STORE
    if chosen.here:  # Pegasus takes files without a server only from the submit host
        places, inputs, store = sites.here_places(out), out / "inputs", "local"
        folder = str(inputs)
    elif chosen.testbed is None:
        places, inputs = sites.example_places(), out / "inputs"
        folder = f"{places[sites.DATA_STORE].storage}/{name}"
    else:
        places = sites.testbed_places(chosen.testbed)
        inputs = Path(places[sites.DATA_STORE].storage) / name
        folder = str(inputs)
    made = dataset.plan(cohort, recipe) if chosen.data else None
    # A process that finds a workflow.yml finds everything it needs: it goes first and comes last.
    (out / "workflow.yml").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    checksums: dict[str, str] = {}
    if made is not None:
        sizes = made.write(inputs, out / "truth")
        checksums = {lfn: sha256(inputs / lfn) for lfn in sizes}
    else:
        sizes = shape.input_sizes(cohort, recipe)
    urls: dict[str, str] = {}
    zone = zones.of_testbed(chosen.testbed) if chosen.testbed and made else None
    if zone is not None and zone.site == store:
        for lfn, replica in zone.store([inputs / lfn for lfn in cohort.raw_reads]).items():
            urls[lfn], sizes[lfn] = replica.url, replica.size
            if replica.sha256:
                checksums[lfn] = replica.sha256
    estimate = shape.Estimate(cohort, recipe, sizes)
    write_plan(
        out,
        Pgen(name, cohort, estimate).build(),
        catalogs.site_catalog(places, site_estimates.SITE_ESTIMATES, site_estimates.bandwidth),
        catalogs.replica_catalog(places[store], folder, sizes, checksums, urls),
        catalogs.transformation_catalog(
            site_estimates.NAMESPACE,
            estimate.runtimes_s(),
            lambda name: {
                site: f"{places[site].tools}/{name}" for site in site_estimates.sites_of(name)
            },
        ),
    )
    where = f", {len(urls)} files of it in an iRODS zone" if urls else ""
    source = f"data made{where}" if made is not None else "no data made, sizes estimated"
    return (
        f"{out}: {cohort.jobs} jobs over {cohort.samples_count} samples and "
        f"{cohort.chromosomes_count} chromosomes, {sum(sizes.values()):,} bytes of input ({source})"
    )


def main(argv: list[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write into")
    parser.add_argument("--name", default="soykb", help="of the workflow (soykb)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--here", action="store_true", help="sites are folders on this machine")
    where.add_argument("--testbed", type=Path, help="testbed.json of a running test bed")
    parser.add_argument(
        "--no-data", dest="data", action="store_false", help="declare sizes, make no data"
    )
    options.add_to(parser)
    chosen = parser.parse_args(argv)
    try:
        print(write(chosen))
    except (ExampleError, OSError) as error:
        print(f"workflow.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
