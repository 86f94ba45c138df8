"""``adon completion``: scripts with which a shell completes ADON's commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from adon.cli.parsing import Nouns, add_handler, option

_SHELLS = ("bash", "zsh", "tcsh")


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon completion``."""
    shell = option("shell", "bash, zsh or tcsh", "SHELL", choices=_SHELLS)
    add_handler(nouns, "completion", _run, shell)


def _run(args: argparse.Namespace) -> int:
    """Print a script with which your shell completes commands, options and files.

    The Debian package has it installed already.

    Examples:
      eval "$(adon completion bash)"                                    in ~/.bashrc
      adon completion zsh > ~/.zfunc/_adon                              with ~/.zfunc in fpath
      adon completion tcsh > ~/.adon.tcsh; source ~/.adon.tcsh          in ~/.tcshrc
    """
    import shtab

    from adon.cli.main import build_parser

    parser = build_parser()
    for action in _actions(parser):
        if action.type is Path:
            kind = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
            action.complete = kind  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
