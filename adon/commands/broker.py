"""Run the broker: it grants, installs and takes back paths and bandwidth.

Serves its REST API until it is told to stop (Ctrl-C or TERM), then clears its rules from the
switches. Transits that still live come back with the next start, until their leases end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from adon.commands.parsing import Nouns, add_command

_MORE = """
Examples:
  adon broker --config examples/adon.yml      two paths, simulated switches, no root needed
  adon topology show                          in another terminal
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon broker``."""
    parser = add_command(nouns, "broker", __doc__, _run, _MORE)
    parser.add_argument(
        "--config", type=Path, default=Path("adon.yml"), metavar="FILE",
        help="network, controller and addresses (default: ./%(default)s)",
    )  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    from adon.service import serve

    return serve(args.config, say=lambda line: print(line, flush=True))
