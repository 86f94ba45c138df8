"""``adon``: application-driven overlay networks for Pegasus and HTCondor workflows.

Noun-verb commands. Exit codes: 0 done, 1 ran and did not succeed, 2 could not run (one line on
standard error says what was found and what was expected).
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from socket import gaierror
from typing import Any

from adon.cli.output import note
from adon.cli.parsing import CommandParser, SubcommandParser, help_command
from network_provisioner.base.errors import AbsentError, AdonError, BrokerError

NOUNS = (
    "doctor", "init", "site", "plan", "monitor", "broker", "topology", "transit", "template",
    "policy", "state", "install", "watch", "workflow", "pool", "agent", "dashboard", "archive",
    "measure", "transfer", "relay", "completion", "top",
)  # fmt: skip
_DESCRIPTION = "ADON: application-driven overlay networks for Pegasus and HTCondor workflows."
_EPILOG = """\
'adon help COMMAND' explains a command, with examples. Start with 'adon doctor'.

Exit codes: 0 done; 1 ran and did not succeed; 2 could not run: one line on standard error says what
was found and what was expected.
"""
_ADVICE = {
    "unauthorized": "--token-file or ADON_TOKEN_FILE names a file with your token",
    "token_expired": "an administrator creates tokens with 'adon broker token new'",
    "unknown_transit": "'adon transit list --all' has all",
    "unknown_policy": "'adon policy list --all' has all",
}
"""What to do about an error of the broker, by its code."""


class _Version(argparse.Action):
    """``--version``, looked up only when asked for: reading it costs more than all the parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib import metadata

        print(f"adon {metadata.version('adon-wms')}")
        parser.exit()


def build_parser(words: Sequence[str] = ()) -> CommandParser:
    """The command line; where ``words`` name a command only its own part, which starts sooner."""
    parser = CommandParser(prog="adon", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="show a traceback instead of one line")
    parser.set_defaults(run=help_command(parser))
    nouns = parser.add_subparsers(dest="noun", metavar="COMMAND", parser_class=SubcommandParser)
    first = next((word for word in words if not word.startswith("-")), "")
    for noun in (first,) if first in NOUNS else NOUNS:
        import_module(f"adon.cli.{noun}").NOUN.add(nouns)
    return parser


def main(argv: Sequence[str] | None = None, parser: CommandParser | None = None) -> int:
    """Run one command of ``parser``, by default ``adon``'s, and return its exit code."""
    _prepare_streams()
    debug, args = False, argparse.Namespace()
    try:
        try:
            words = sys.argv[1:] if argv is None else argv
            if words[:1] == ["help"]:
                words = [*words[1:], "--help"]
            args = (parser or build_parser(words)).parse_args(words)
            debug = args.debug
            code: int = args.run(args)
        except SystemExit:  # help was printed, or the arguments cannot be: flushed like the rest
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return code
    except AdonError as error:
        if debug:
            raise
        note(f"{error}{_next_step(error, args)}")
        return 2
    except OSError as error:
        if debug:
            raise
        _drop_unwritten()
        if isinstance(error, BrokenPipeError):
            # The reader of our output (head, less) is gone: nothing is wrong, nothing to say.
            return 0
        where = f"{error.filename}: " if error.filename else ""
        room = ", expected room to write" if error.errno == errno.ENOSPC else ""
        note(f"{where}{error.strerror or error}{room}")
        return 2
    except KeyboardInterrupt:
        note("interrupted")
        return 130


def _next_step(error: AdonError, args: argparse.Namespace) -> str:
    """What to do about it, where the message does not say."""
    step = _ADVICE.get(error.code, "")
    if isinstance(error, BrokerError) and isinstance(error.__cause__, ConnectionRefusedError):
        step = "start one with 'adon broker', or name another by --broker or ADON_BROKER"
    elif isinstance(error, BrokerError) and isinstance(error.__cause__, gaierror):
        step = "name another by --broker or ADON_BROKER"
    elif isinstance(error, AbsentError) and error.path == getattr(args, "config", None):
        step = "'adon init' makes one, --config names another"
    elif isinstance(error, AbsentError) and error.path == getattr(args, "hooks", None):
        step = "'adon install pegasus' makes one, --hooks names another"
    return f": {step}" if step else ""


def _prepare_streams() -> None:
    if sys.stdout is None:  # started with standard output closed
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that has no Γ gets its escape: an answer is worth more than its looks.
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_unwritten() -> None:
    """Let go of output that cannot be written, so that the interpreter does not try once more at
    its end and complain in its own words."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
