"""The parts of the SoyKB example: made-up data, catalogs and the sizes the workflow declares.

genome   a reference, planted variants, the haplotypes of each sample
reads    paired-end reads from haplotypes, as FASTQ
dataset  one directory of inputs plus the truth
cohort   names of samples, chromosomes and files; how many jobs a size makes
shape    sizes and run times known before the first run
sites    where things are: example sites, or those of a running test bed
catalogs Pegasus site, replica and transformation catalogs
"""

import argparse
from typing import NoReturn


class ExampleError(ValueError):
    """An option or file that cannot be used; the scripts print it in one line and exit with 2."""


class Parser(argparse.ArgumentParser):
    """Help from a script's docstring; a bad option is one line and exit status 2."""

    def __init__(self, description: str | None) -> None:
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")
