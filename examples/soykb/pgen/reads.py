"""Paired-end reads from a sample's haplotypes, as a modern Illumina machine would give them.

Qualities come in the four bins such machines write. An error is drawn with the probability its
quality states, so qualities mean what they say, as callers assume.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgen.genome import Bases

Matrix = NDArray[np.uint8]

READ_BP = 150
FRAGMENT_MEAN_BP = 350.0
FRAGMENT_SD_BP = 40.0
DUPLICATE_FRACTION = 0.03  # PCR copies of a fragment, which markdup has to find

QUALITIES = np.array([2, 12, 23, 37], dtype=np.uint8)
NO_CALL = 2  # quality of a base the machine could not read: N
# Share of each quality at the first and the last cycle; errors grow along the read. The mean
# error rate that follows is about 0.3 %.
FIRST_CYCLE = np.array([0.0002, 0.012, 0.05, 0.9378])
LAST_CYCLE = np.array([0.0004, 0.060, 0.13, 0.8096])

_LETTERS = np.frombuffer(b"ACGTN", dtype=np.uint8)
_N = 4
GZIP_LEVEL = 4


@dataclass(frozen=True)
class Pairs:
    """Codes and qualities of both mates, one row per pair."""

    first: Matrix
    first_quality: Matrix
    second: Matrix
    second_quality: Matrix


def pair_count(genome_bp: int, coverage: float) -> int:
    """Pairs that cover a genome ``coverage`` times, before PCR duplicates."""
    return round(coverage * genome_bp / (2 * READ_BP))


def _qualities(rng: np.random.Generator, rows: int) -> Matrix:
    cycle = np.linspace(0.0, 1.0, READ_BP)[:, None]
    bounds = np.cumsum(FIRST_CYCLE * (1 - cycle) + LAST_CYCLE * cycle, axis=1)
    draw = rng.random((rows, READ_BP), dtype=np.float32)
    bin_of = np.zeros((rows, READ_BP), dtype=np.uint8)
    for edge in range(len(QUALITIES) - 1):
        bin_of += draw >= bounds[None, :, edge]
    return QUALITIES[bin_of]


def _with_errors(rng: np.random.Generator, true: Matrix, quality: Matrix) -> Matrix:
    chance = (10.0 ** (-np.arange(64) / 10.0)).astype(np.float32)[quality]
    wrong = rng.random(true.shape, dtype=np.float32) < chance
    read = true.copy()
    shift = rng.integers(1, 4, size=int(wrong.sum()), dtype=np.uint8)
    read[wrong] = (read[wrong] + shift) % 4
    read[quality == NO_CALL] = _N
    return read


def simulate(rng: np.random.Generator, copies: list[tuple[Bases, Bases]], coverage: float) -> Pairs:
    """Reads of one diploid sample: ``copies`` has both haplotypes of each chromosome."""
    firsts, seconds = [], []
    along = np.arange(READ_BP)
    for pair in copies:
        for bases in pair:
            count = pair_count(len(bases), coverage / 2)
            length = np.clip(
                rng.normal(FRAGMENT_MEAN_BP, FRAGMENT_SD_BP, count).astype(np.int64),
                READ_BP,
                len(bases),
            )
            start = (rng.random(count) * (len(bases) - length + 1)).astype(np.int64)
            forward = bases[start[:, None] + along]
            backward = 3 - bases[(start + length - 1)[:, None] - along]
            flip = rng.random(count) < 0.5
            firsts.append(np.where(flip[:, None], backward, forward))
            seconds.append(np.where(flip[:, None], forward, backward))
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    extra = rng.choice(len(first), size=int(len(first) * DUPLICATE_FRACTION), replace=False)
    order = rng.permutation(np.concatenate([np.arange(len(first)), extra]))
    first, second = first[order], second[order]
    first_quality, second_quality = (_qualities(rng, len(order)) for _ in range(2))
    return Pairs(
        _with_errors(rng, first, first_quality),
        first_quality,
        _with_errors(rng, second, second_quality),
        second_quality,
    )


def fastq(sample: str, codes: Matrix, quality: Matrix) -> bytes:
    """FASTQ text; both mates of a pair carry the same name."""
    rows = len(codes)
    name = np.frombuffer(f"@{sample}:00000000\n".encode(), dtype=np.uint8)
    number = np.arange(rows)
    record = np.empty((rows, len(name) + 2 * READ_BP + 4), dtype=np.uint8)
    record[:, : len(name)] = name
    for digit in range(8):
        record[:, len(name) - 2 - digit] = number // 10**digit % 10 + ord("0")
    at = len(name)
    record[:, at : at + READ_BP] = _LETTERS[codes]
    at += READ_BP
    record[:, at : at + 3] = np.frombuffer(b"\n+\n", dtype=np.uint8)
    at += 3
    record[:, at : at + READ_BP] = quality + 33
    record[:, -1] = ord("\n")
    return record.tobytes()


def fastq_gz(sample: str, codes: Matrix, quality: Matrix) -> bytes:
    """Gzipped FASTQ, without a time stamp, so that the same reads give the same bytes."""
    return gzip.compress(fastq(sample, codes, quality), GZIP_LEVEL, mtime=0)
