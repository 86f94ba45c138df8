"""Write the man page of the command line's parser."""

from __future__ import annotations

from adon.cli.main import build_parser


def main() -> None:
    """``python packaging/generate.py``, with argparse-manpage at hand."""
    from argparse_manpage.manpage import Manpage  # noqa: PLC0415

    print(Manpage(build_parser(), format="pretty"))


if __name__ == "__main__":
    main()
