#!/usr/bin/env python3
"""Make the SoyKB example's data: a reference, raw reads of each sample, and the truth.

    makedata.py --out DIR [--samples 3] [--chromosomes 2] [--chromosome-bp 300000] [--seed 1] ...

DIR/inputs gets the reference (FASTA) and two gzipped FASTQ files per sample; DIR/truth gets
truth.vcf, the planted variants with each sample's genotype, and dataset.json. The same options
give the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pgen import ExampleError, Parser, dataset, options


def main(argv: list[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write into")
    options.add_to(parser)
    chosen = parser.parse_args(argv)
    try:
        cohort, recipe = options.read(chosen)
        made = dataset.plan(cohort, recipe)
        sizes = made.write(chosen.out / "inputs", chosen.out / "truth")
    except (ExampleError, OSError) as error:
        print(f"makedata.py: {error}", file=sys.stderr)
        return 2
    for name, size in sizes.items():
        print(f"{size:>12} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
