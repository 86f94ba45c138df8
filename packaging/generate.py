"""Write the man page of the command line's parser."""

from __future__ import annotations

import re

from adon.cli.main import build_parser

_ABOUT = "application-driven overlay networks for Pegasus and HTCondor workflows"


def escaped(page: str) -> str:
    """A page without lines of text that troff takes for macros, which it leaves out."""
    return re.sub("^'", r"\\&'", page, flags=re.M)


def main() -> None:
    """``python packaging/generate.py``, with argparse-manpage at hand."""
    from argparse_manpage.manpage import Manpage  # noqa: PLC0415

    data = {"description": _ABOUT, "manual_title": "ADON"}
    print(escaped(str(Manpage(build_parser(), data, format="pretty"))))


if __name__ == "__main__":
    main()
