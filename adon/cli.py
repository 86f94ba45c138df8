"""``adon``: application-driven overlay networks for Pegasus and HTCondor workflows.

Noun-verb commands. Exit codes: 0 done, 1 ran and did not succeed, 2 could not run as asked (one
line on standard error says what was found and what was expected).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from network_provisioner.errors import AdonError

NOUNS = ("demo", "doctor", "site", "plan", "broker", "transit", "topology", "monitor")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; every command's help is its module's docstring."""
    parser = argparse.ArgumentParser(prog="adon", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    nouns = parser.add_subparsers(dest="noun", required=True, metavar="COMMAND")
    for noun in NOUNS:
        import_module(f"adon.commands.{noun}").add(nouns)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except AdonError as error:
        if args.debug:
            raise
        print(f"adon: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if args.debug:
            raise
        if isinstance(error, BrokenPipeError):
            # The reader of our output (head, less) is gone: nothing is wrong, nothing to say.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        where = f"{error.filename}: " if error.filename else ""
        print(f"adon: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("adon: interrupted", file=sys.stderr)
        return 130
