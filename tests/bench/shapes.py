"""Traces in the shape of SoyKB's and Montage's, for benches where there are no real ones.

Stages, who reads what, and orders of magnitude are those of traced runs; every run time is drawn
about its stage's.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from site_selector.evaluation.traces import Task, Trace, build_trace

_KB, _MB = 1e3, 1e6
# One sample's stages in SoyKB: seconds on the traced machine.
_SAMPLE = {
    "alignment_to_reference": 20.0,
    "sort_sam": 25.0,
    "dedup": 25.0,
    "add_replace": 25.0,
    "realign_target_creator": 105.0,
    "indel_realign": 90.0,
}


class _Draft:
    """Tasks and sizes as they come."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.tasks: list[Task] = []
        self.sizes: dict[str, float] = {}

    def add(
        self, kind: str, seconds: float, reads: Sequence[str], wrote: Sequence[float]
    ) -> list[str]:
        """A task that writes files of these sizes; returns their names."""
        name = f"{kind}_{len(self.tasks)}"
        writes = [f"{name}.{i}" for i in range(len(wrote))]
        self.sizes.update(zip(writes, wrote, strict=True))
        runtime = seconds * self.rng.uniform(0.6, 1.4)
        self.tasks.append(Task(name, kind, (), (), tuple(reads), tuple(writes), runtime))
        return writes

    def raw(self, name: str, size: float) -> str:
        self.sizes[name] = size
        return name


def soykb(samples: int, chromosomes: int, seed: int = 0) -> Trace:
    """Samples are aligned and cleaned up, called per chromosome, and all merged."""
    d = _Draft(seed)
    genome = [d.raw(f"genome.{i}", size * _MB) for i, size in enumerate((990, 978, 489, 245, 0.2))]
    called: list[list[str]] = [[] for _ in range(chromosomes)]
    for sample in range(samples):
        here = [d.raw(f"sample{sample}.{i}", 24 * _KB) for i in range(2)]
        for kind, seconds in _SAMPLE.items():
            here = d.add(kind, seconds, [*here, *genome], [130 * _KB, 40 * _KB])
        for files in called:
            files.extend(d.add("haplotype_caller", 125, [*here, *genome], [60 * _KB, 28 * _KB]))
    genotyped = [
        f
        for files in called
        for f in d.add("genotype_gvcfs", 13.0 * samples, [*files, *genome], [60 * _KB, 28 * _KB])
    ]
    everything = [f for files in called for f in files]
    d.add("merge_gvcf", 38.0 * samples * chromosomes, [*everything, *genome], [145 * _KB])
    combined = d.add("combine_variants", 12, [*genotyped, *genome], [75 * _KB])
    for what in ("snp", "indel"):
        selected = d.add(f"select_variants_{what}", 135, [*combined, *genome], [75 * _KB])
        d.add(f"filtering_{what}", 65, [*selected, *genome], [80 * _KB])
    return build_trace(f"soykb-{samples}-{chromosomes}", d.tasks, d.sizes)


def montage(images: int, seed: int = 0) -> Trace:
    """In three colours, images are projected, neighbours compared, all brought to one background
    and added up."""
    d = _Draft(seed)
    header = d.raw("region.hdr", 300)
    mosaics: list[str] = []
    for colour in range(3):
        projected = []
        for i in range(images):
            image = d.raw(f"image{colour}.{i}", 1.5 * _MB)
            projected.append(d.add("mProject", 16, [image, header], [4.1 * _MB] * 2))
        fits: list[str] = []
        for i in range(images):
            for j in range(i + 1, min(images, i + 4)):
                both = [*projected[i], *projected[j], header]
                fits += d.add("mDiffFit", 0.3, both, [300])
        table = d.add("mConcatFit", 0.2, fits, [1500])
        model = d.add("mBgModel", 0.6, table, [400])
        corrected = [
            d.add("mBackground", 0.4, [*files, *model], [4.1 * _MB] * 2) for files in projected
        ]
        every = [f for files in corrected for f in files]
        images_table = d.add("mImgtbl", 0.2, every, [4 * _KB])
        mosaic = d.add("mAdd", 0.5, [*every, *images_table, header], [9.3 * _MB] * 2)
        mosaics += mosaic[:1]
        d.add("mViewer", 0.8, mosaic[:1], [0.45 * _MB])
    d.add("mViewer", 2, mosaics, [0.63 * _MB])
    return build_trace(f"montage-{images}", d.tasks, d.sizes)
