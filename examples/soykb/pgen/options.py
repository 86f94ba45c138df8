"""The options that workflow.py and makedata.py share: how much data, and from which seed."""

from __future__ import annotations

import argparse

from pgen.cohort import Cohort
from pgen.dataset import Recipe


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare the options, with their defaults."""
    recipe = Recipe()
    parser.add_argument("--samples", type=int, default=3, help="diploid samples (3)")
    parser.add_argument("--chromosomes", type=int, default=2, help="chromosomes (2)")
    parser.add_argument(
        "--chromosome-bp",
        type=int,
        default=recipe.chromosome_bp,
        help=f"length of each chromosome in base pairs ({recipe.chromosome_bp})",
    )
    parser.add_argument(
        "--coverage",
        type=float,
        default=recipe.coverage,
        help=f"mean read depth ({recipe.coverage:g})",
    )
    parser.add_argument(
        "--snps", type=int, default=recipe.snps, help=f"SNPs to plant in all ({recipe.snps})"
    )
    parser.add_argument(
        "--indels", type=int, default=recipe.indels, help=f"INDELs to plant ({recipe.indels})"
    )
    parser.add_argument("--seed", type=int, default=recipe.seed, help="of all randomness (1)")


def read(chosen: argparse.Namespace) -> tuple[Cohort, Recipe]:
    """The cohort and recipe that the parsed options describe. Raises ExampleError."""
    return Cohort(chosen.samples, chosen.chromosomes), Recipe(
        seed=chosen.seed,
        chromosome_bp=chosen.chromosome_bp,
        coverage=chosen.coverage,
        snps=chosen.snps,
        indels=chosen.indels,
    )
