"""What the examples' workflows share: sites, Pegasus's catalogs, and files that are written whole.

places   where things are: example sites, folders here, or those of a running test bed
catalogs Pegasus site, replica and transformation catalogs
jobs     jobs and files of a workflow that is being built
files    documents as text that does not change between runs
"""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Help from a script's docstring; a bad option is one line and exit status 2."""

    def __init__(self, description: str | None) -> None:
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )

    def error(self, message: str) -> NoReturn:
        """One line and exit status 2."""
        self.exit(2, f"{self.prog}: {message}\n")
