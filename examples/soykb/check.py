#!/usr/bin/env python3
"""Compare called SNPs with the planted truth.

    check.py --truth truth.vcf --calls All.filtered_snp.vcf.gz

A planted SNP is found when a record that passed the filters has its chromosome, position,
reference and alternative base. Recall is found / planted, precision found / passed. Genotype
concordance is the share of equal genotypes over all samples of the SNPs found. Prints one JSON
object. Exit status: 0 both thresholds held, 1 one was missed, 2 input that cannot be read.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from pgen import Parser

FIXED_COLUMNS = 9  # CHROM to FORMAT; genotypes follow
BASES = frozenset("ACGT")

# Chromosome, position, reference base, alternative base
Snp = tuple[str, int, str, str]
# Copies of the alternative base per sample; None if no call was made
Copies = dict[str, int | None]


class BadInput(ValueError):
    """A file that is not the VCF it should be."""


def _lines(path: Path) -> Iterator[str]:
    """Lines of a plain or (block-)gzipped text file."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if packed else path.open("rb") as lines:
        for line in lines:
            yield line.decode("utf-8").rstrip("\n")


def _copies(call: str, allele: int) -> int | None:
    parts = call.split(":", 1)[0].replace("|", "/").split("/")
    return None if "." in parts else sum(part == str(allele) for part in parts)


def snps(path: Path) -> dict[Snp, Copies]:
    """Every SNP of a VCF that passed its filters (FILTER is PASS or '.').

    Raises BadInput if the file is no VCF, OSError if it cannot be read.
    """
    samples: list[str] | None = None
    copies_by_snp: dict[Snp, Copies] = {}
    try:
        for number, line in enumerate(_lines(path), start=1):
            if line.startswith("##") or not line:
                continue
            fields = line.split("\t")
            if line.startswith("#CHROM"):
                samples = fields[FIXED_COLUMNS:]
                continue
            if samples is None or len(fields) < len(samples) + FIXED_COLUMNS:
                raise BadInput(f"{path}:{number}: found {line[:40]!r}, expected a VCF record")
            chromosome, position, _, ref, alts, _, passed = fields[:7]
            if not position.isdigit():
                raise BadInput(f"{path}:{number}: found POS {position!r}, expected a number")
            if passed not in {"PASS", "."} or ref.upper() not in BASES:
                continue
            for allele, alt in enumerate(alts.upper().split(","), start=1):
                if alt in BASES:
                    calls = fields[FIXED_COLUMNS:]
                    copies_by_snp[(chromosome, int(position), ref.upper(), alt)] = {
                        sample: _copies(call, allele)
                        for sample, call in zip(samples, calls, strict=True)
                    }
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: found {error}, expected a whole VCF, plain or gzipped") from error
    if samples is None:
        raise BadInput(f"{path}: found no #CHROM line, expected a VCF")
    return copies_by_snp


def compare(truth: dict[Snp, Copies], called: dict[Snp, Copies]) -> dict[str, int | float]:
    """Counts and rates of ``called`` against ``truth``; an empty call set has precision 0.

    Raises BadInput if nothing was planted.
    """
    if not truth:
        raise BadInput("the truth has no SNP, expected at least one")
    hits = truth.keys() & called.keys()
    pairs = [
        (copies, called[snp].get(sample)) for snp in hits for sample, copies in truth[snp].items()
    ]
    equal = sum(planted == seen for planted, seen in pairs)
    return {
        "planted_snps": len(truth),
        "called_snps": len(called),
        "found_snps": len(hits),
        "recall": len(hits) / len(truth),
        "precision": len(hits) / len(called) if called else 0.0,
        "genotype_concordance": equal / len(pairs) if pairs else 0.0,
    }


def main(argv: list[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--truth", type=Path, required=True, help="VCF of planted variants")
    parser.add_argument("--calls", type=Path, required=True, help="VCF of filtered SNPs")
    parser.add_argument("--min-recall", type=float, default=0.99)
    parser.add_argument("--min-precision", type=float, default=0.97)
    options = parser.parse_args(argv)
    try:
        figures = compare(snps(options.truth), snps(options.calls))
    except (BadInput, OSError) as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(figures))
    held = figures["recall"] >= options.min_recall and figures["precision"] >= options.min_precision
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
