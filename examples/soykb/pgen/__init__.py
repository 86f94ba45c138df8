"""The parts of the SoyKB example: made-up data, catalogs and the sizes the workflow declares.

genome   a reference, planted variants, the haplotypes of each sample
reads    paired-end reads from haplotypes, as FASTQ
dataset  one directory of inputs plus the truth
cohort   names of samples, chromosomes and files; how many jobs a size makes
shape    sizes and run times known before the first run
sites    where things are: example sites, or those of a running test bed
estimates  what its administrator believes of each site, and where each program is installed
"""

import sys
from pathlib import Path

# The scripts find this package beside them, and through it what the examples share.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from examples.workflows import Parser
from network_provisioner.base.errors import InputError as ExampleError

__all__ = ["ExampleError", "Parser"]
