"""Write what is made of the command line's parser: ``man``, ``bash`` or ``zsh``."""

from __future__ import annotations

import sys

from adon.cli.main import build_parser


def main() -> None:
    """``python packaging/generate.py KIND``, with argparse-manpage and shtab at hand."""
    parser, kind = build_parser(), sys.argv[1]
    if kind == "man":
        from argparse_manpage.manpage import Manpage  # noqa: PLC0415

        print(Manpage(parser, format="pretty"))
    else:
        import shtab  # noqa: PLC0415

        print(shtab.complete(parser, kind))


if __name__ == "__main__":
    main()
