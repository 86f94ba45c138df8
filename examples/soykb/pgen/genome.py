"""A random reference, variants planted in it, and the haplotypes of diploid samples.

Bases are codes 0..3 for A, C, G, T in ``uint8`` arrays; positions are 0-based here and 1-based in
every file that is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pgen import ExampleError

Bases = NDArray[np.uint8]

BASES = b"ACGT"
GC_FRACTION = 0.35  # of the soybean genome
# No variant is where reads thin out at a chromosome's ends, nor so close to its neighbour
# that the two would be one multi-nucleotide event to a caller.
EDGE_BP = 500
SPACING_BP = 60
MAX_INDEL_BP = 8
SHARED_FRACTION = 0.4  # of variants: carried by more than one sample
HOMOZYGOUS_FRACTION = 0.4  # of carried variants: soybean is largely inbred


@dataclass(frozen=True)
class Variant:
    """One planted difference. ``position`` is of ``ref``'s first base, 0-based.

    ``genotypes`` has one pair per sample: 1 where that haplotype carries ``alt``.
    """

    chromosome: str
    position: int
    kind: Literal["SNP", "INDEL"]
    ref: str
    alt: str
    genotypes: tuple[tuple[int, int], ...]


def random_chromosome(rng: np.random.Generator, length_bp: int) -> Bases:
    """A sequence without repeats of note, with soybean's GC content."""
    at, gc = (1 - GC_FRACTION) / 2, GC_FRACTION / 2
    return rng.choice(4, size=length_bp, p=[at, gc, gc, at]).astype(np.uint8)


def text(bases: Bases) -> str:
    """Codes as letters."""
    return np.frombuffer(BASES, dtype=np.uint8)[bases].tobytes().decode()


def _positions(rng: np.random.Generator, length_bp: int, count: int) -> list[int]:
    """``count`` sorted positions at least SPACING_BP apart and EDGE_BP from both ends."""
    room = length_bp - 2 * EDGE_BP - (count - 1) * SPACING_BP
    if room < count:
        raise ExampleError(
            f"{count} variants in a chromosome of {length_bp} bp: found no room, expected at most "
            f"{max(0, (length_bp - 2 * EDGE_BP) // (SPACING_BP + 1))}"
        )
    free = np.sort(rng.choice(room, size=count, replace=False))
    return [int(p) + EDGE_BP + i * SPACING_BP for i, p in enumerate(free)]


def _genotypes(rng: np.random.Generator, samples: int) -> tuple[tuple[int, int], ...]:
    """At least one carrier, so that every planted variant can be found."""
    carriers = 1
    if samples > 1 and rng.random() < SHARED_FRACTION:
        carriers = int(rng.integers(2, samples + 1))
    chosen = set(rng.choice(samples, size=carriers, replace=False).tolist())
    result = []
    for sample in range(samples):
        if sample not in chosen:
            result.append((0, 0))
        elif rng.random() < HOMOZYGOUS_FRACTION:
            result.append((1, 1))
        else:
            result.append((0, 1) if rng.random() < 0.5 else (1, 0))
    return tuple(result)


def _alleles(
    rng: np.random.Generator, reference: Bases, position: int, kind: str
) -> tuple[str, str]:
    anchor = reference[position : position + 1]
    if kind == "SNP":
        return text(anchor), text((anchor + np.uint8(rng.integers(1, 4))) % 4)
    size = int(rng.integers(1, MAX_INDEL_BP + 1))
    if rng.random() < 0.5:  # deletion of the bases after the anchor, as VCF writes it
        # An INDEL whose last base equals its anchor could as well be written further left, where
        # callers put it: take a deletion that ends otherwise, if there is one.
        while size <= MAX_INDEL_BP and reference[position + size] == anchor[0]:
            size += 1
        return text(reference[position : position + 1 + size]), text(anchor)
    inserted = rng.integers(0, 4, size=size).astype(np.uint8)
    inserted[-1] = (int(anchor[0]) + int(rng.integers(1, 4))) % 4
    return text(anchor), text(np.concatenate([anchor, inserted]))


def plant(
    rng: np.random.Generator,
    chromosome: str,
    reference: Bases,
    snps: int,
    indels: int,
    samples: int,
) -> list[Variant]:
    """Variants of one chromosome in order of position.

    Raises ExampleError if that many do not fit.
    """
    indel = rng.permutation(np.arange(snps + indels) < indels)
    variants = []
    for position, is_indel in zip(_positions(rng, len(reference), len(indel)), indel, strict=True):
        kind: Literal["SNP", "INDEL"] = "INDEL" if is_indel else "SNP"
        ref, alt = _alleles(rng, reference, position, kind)
        variants.append(
            Variant(chromosome, position, kind, ref, alt, _genotypes(rng, samples)),
        )
    return variants


def haplotype(reference: Bases, variants: list[Variant], sample: int, copy: int) -> Bases:
    """``reference`` with the variants that copy 0 or 1 of ``sample`` carries."""
    codes = {letter: code for code, letter in enumerate(BASES.decode())}
    pieces: list[Bases] = []
    done = 0
    for variant in variants:
        if not variant.genotypes[sample][copy]:
            continue
        pieces.append(reference[done : variant.position])
        pieces.append(np.array([codes[letter] for letter in variant.alt], dtype=np.uint8))
        done = variant.position + len(variant.ref)
    pieces.append(reference[done:])
    return np.concatenate(pieces)
