"""The command line's parser, and the options that several commands share.

A module has its commands in a :class:`Noun`; what explains a command is its handler's docstring.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from network_provisioner.base.errors import did_you_mean, meant

DEFAULT_BROKER = "http://127.0.0.1:8470"
_AFTER = re.compile(r"^(?=Examples?:|Exit codes:)", re.MULTILINE)  # shown below the options

Run = Callable[[argparse.Namespace], int]
Option = Callable[[Any], object]  # adds something to a parser, or to a group of one
Nouns = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns
_NOW = f"ADON_BROKER, else {DEFAULT_BROKER}"
_TOKEN = "file with the token for the broker (default: ADON_TOKEN_FILE)"
WORKFLOW = "abstract workflow (Pegasus 5 YAML)"
_LEVELS = ("debug", "info", "warning", "error")


class _Formatter(argparse.HelpFormatter):
    """Paragraphs as wide as the terminal, those with indented lines as they are written; options
    and their help side by side."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            part if "\n " in part else textwrap.fill(part, width, break_on_hyphens=False)
            for part in text.split("\n\n")
        )


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, as all of ``adon``'s are."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **settings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            hint = meant(value, choices, f"expected one of {', '.join(choices)}")
            raise argparse.ArgumentError(action, f"found {value!r}, {hint}")

    def error(self, message: str) -> NoReturn:
        """Exit 2 with argparse's words and where the command is explained."""
        self.exit(2, f"adon: {' '.join(message.split())} (see '{self.prog} --help')\n")


class SubcommandParser(CommandParser):
    """The parser of a command below another."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse has it; what is unknown is refused by the command, which knows what may have
        been meant, and not by the one above it."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            names = [word for word in self._option_string_actions if word.startswith("--")]
            hint = did_you_mean(unknown[0].partition("=")[0], names)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return namespace, unknown


def help_command(parser: argparse.ArgumentParser) -> Run:
    """A command that explains those below it."""

    def run(_: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    return run


def add_handler(parent: Nouns[Any], name: str, run: Run, *options: Option) -> CommandParser:
    """A command with options, explained by the docstring of ``run``; examples and exit codes are
    below the options."""
    first, _, rest = (run.__doc__ or "").partition("\n")
    text, *more = _AFTER.split(f"{first}\n{textwrap.dedent(rest)}".strip(), maxsplit=1)
    epilog = more[0] if more else None
    parser: CommandParser = parent.add_parser(
        name, help=_first(text), description=text.strip(), epilog=epilog
    )
    parser.set_defaults(run=run)
    for add in options:
        add(parser)
    return parser


class Noun:
    """A command with verbs, in the order in which their handlers are defined, with a handler of its
    own, or with both."""

    def __init__(self, name: str, doc: str | None = None) -> None:
        self._name, self._doc = name, doc
        self._own: tuple[Run, tuple[Option, ...]] | None = None
        self._below: list[Callable[[Nouns[Any]], object]] = []

    def command(self, *options: Option) -> Callable[[Run], Run]:
        """Decorates the handler of the command without a verb."""

        def register(run: Run) -> Run:
            self._own = run, options
            return run

        return register

    def verb(self, name: str, *options: Option) -> Callable[[Run], Run]:
        """Decorates the handler of a verb."""

        def register(run: Run) -> Run:
            self._below.append(lambda verbs: add_handler(verbs, name, run, *options))
            return run

        return register

    def noun(self, name: str, doc: str) -> Noun:
        """A verb that has verbs itself."""
        below = Noun(name, doc)
        self._below.append(below.add)
        return below

    def add(self, nouns: Nouns[Any]) -> None:
        """Add it to the command line."""
        if self._own is not None:
            run, options = self._own
            parser = add_handler(nouns, self._name, run, *options)
        else:
            text = (self._doc or "").strip()
            parser = nouns.add_parser(self._name, help=_first(text), description=text)
            parser.set_defaults(run=help_command(parser))
        if self._below:
            metavar = "VERB" if self._own is None else "[VERB]"
            verbs = parser.add_subparsers(dest="verb", metavar=metavar)
            for add in self._below:
                add(verbs)


def _first(text: str) -> str:
    """The first paragraph as a line of a list: lower case, no full stop."""
    line = " ".join(text.partition("\n\n")[0].split()).removesuffix(".")
    return line[:1].lower() + line[1:]


def option(
    names: str, meaning: str, metavar: Any = None, kind: Any = None, **settings: Any
) -> Option:
    """An argument. ``names`` is ``-o/--output`` or the name of one without dashes; ``kind`` makes a
    value of its text. A default is shown, unless ``meaning`` says what it is."""
    if settings.get("default") not in (None, "", [], ()) and "(default" not in meaning:
        meaning += " (default: %(default)s)"
    settings |= {"help": meaning, "metavar": metavar, "type": kind}
    return lambda parser: parser.add_argument(*names.split("/"), **settings)


def flag(name: str, meaning: str) -> Option:
    """An option without a value."""
    return lambda parser: parser.add_argument(name, action="store_true", help=meaning)


def one_of(*options: Option, required: bool = False) -> Option:
    """At most one of these, or one of them where it is required."""

    def add(parser: CommandParser) -> None:
        group = parser.add_mutually_exclusive_group(required=required)
        for add_to in options:
            add_to(group)

    return add


add_json = flag("--json", "print JSON")


def add_output(parser: CommandParser) -> None:
    """How records are printed: see :func:`adon.cli.output.print_records`."""
    one_of(add_json, flag("--csv", "print CSV, with raw values and a header"))(parser)
    option("--columns", "print only these columns, in this order", "NAME,...", names)(parser)


def _broker_url(text: str) -> str:
    return text or os.environ.get("ADON_BROKER") or DEFAULT_BROKER


TOKEN_FILE = option("--token-file", _TOKEN, "FILE", Path)


def add_broker(parser: CommandParser) -> None:
    """The broker that a command asks."""
    address = f"the broker's address (default: {_NOW})"
    option("--broker", address, "URL", _broker_url, default="")(parser)
    TOKEN_FILE(parser)
    reads_answers(parser)


def reads_answers(parser: CommandParser) -> None:
    """What does not fit in the answers of ``--broker`` is that broker's fault, in one line; with
    ``--debug`` it is a traceback."""
    run: Run = parser.get_default("run")

    def read(args: argparse.Namespace) -> int:
        if args.broker is None or args.debug:
            return run(args)
        from network_provisioner.client.broker import bad_answer

        with bad_answer(args.broker, "valid one"):
            return run(args)

    parser.set_defaults(run=read)


def broker_option(meaning: str) -> Option:
    """``--broker [URL]``: a broker is asked where the option is given."""
    text = f"{meaning} (without URL: {_NOW})"
    return option("--broker", text, "URL", _broker_url, nargs="?", const="")


def config(meaning: str = "adon.yml", default: str | None = "adon.yml") -> Option:
    """``--config FILE``."""
    return option("--config", meaning, "FILE", Path, default=default and Path(default))


ARCHIVE = option(
    "--archive", "the archive: a file, or postgresql://…", "FILE_OR_URL",
    default="adon-archive.sqlite",
)  # fmt: skip
SINCE = option("--since", "only from this time on: a time, or how long ago", "TIME")
UNTIL = option("--until", "only up to this time: a time, or how long ago", "TIME")
START = option(
    "--start", "start: ISO 8601 (local time), Unix seconds, or '+2 h' (default: now)", "TIME"
)
UNDO = flag("--undo", "remove what this command has added")
SETTINGS = option(
    "--set", "option of the tool (docs/agents.md); may be repeated", "OPTION=VALUE",
    action="append", default=[],
)  # fmt: skip
DRY_RUN = flag("--dry-run", "only show what would change")
TEMPLATE = option("--template", "name of the template", "NAME", default="default")


def logging_options(parser: CommandParser) -> None:
    """``--log-level`` and ``--log-file`` of a daemon, for :func:`log_as`."""
    option("--log-level", "what to log", choices=_LEVELS, default="info")(parser)
    rotated = "log file, rotated at 10 MB into FILE.1 (default: standard error, or the journal)"
    option("--log-file", rotated, "FILE", Path)(parser)


def log_as(args: argparse.Namespace) -> None:
    """Log as the options say. Raises InputError."""
    from network_provisioner.base.daemon_log import log_to  # other commands start sooner without

    log_to(args.log_file, args.log_level)


def limit(most: int, default: int | None = None) -> Option:
    """``--limit N``."""
    return option("--limit", "show at most N", "N", whole(1, most), default=default)


def page_file(text: str) -> Path:
    """An argument type: a file for a page."""
    if not text.lower().endswith((".html", ".htm")):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a name that ends in .html")
    return Path(text)


add_plot = option("--plot", "write a drawing to this HTML file", "FILE", page_file)


def names(text: str) -> list[str]:
    """An argument type: names between commas."""
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected names between commas")
    return list(dict.fromkeys(names))


def command_words(text: str) -> list[str]:
    """An argument type: a command with its arguments, in quotes where a shell needs them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}: {error}, expected a command") from None


def whole(least: int, most: int) -> Callable[[str], int]:
    """An argument type: a whole number from ``least`` to ``most``."""

    def parse(text: str) -> int:
        if text.strip().isdecimal() and len(text) <= 20 and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a whole number from {least} to {most}"
        )

    return parse


def catalog(kind: str) -> Option:
    """``--sites``, ``--replicas`` or ``--transformations``."""
    place = f"as pegasus-plan finds it, else {kind}s.yml next to the workflow"
    return option(f"--{kind}s", f"{kind} catalog (default: {place})", "FILE", Path)


def _collector(text: str) -> str:
    """An argument type: the address of a collector, empty for the configured one."""
    if (text and not re.fullmatch(r"[A-Za-z0-9._\[\]:-]+(:[0-9]{1,5})?", text)) or "/" in text:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a collector such as 'cm.example.org:9618'"
        )
    if text.endswith((".yml", ".yaml")):
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a collector; give the workflow before --pool"
        )
    return text


REPLICAS = catalog("replica")
CONF = option(
    "--conf", "Pegasus's properties, as pegasus-plan's --conf (also read: ~/.pegasusrc, and "
    "pegasus.properties here and next to the workflow)", "FILE", Path,
)  # fmt: skip
EXECUTION_SITES = option(
    "--execution-sites", "where jobs may run, as pegasus-plan's --sites (default: the site "
    "'compute' if there is one, else every site but local)", "SITE,...", names,
)  # fmt: skip
_INPUTS = (
    catalog("site"),
    REPLICAS,
    catalog("transformation"),
    CONF,
    option(
        "--input-dir", "directories of inputs on this machine, as pegasus-plan's --input-dir",
        "DIR,...", lambda text: tuple(map(Path, names(text))), dest="input_dirs", default=(),
    ),
    EXECUTION_SITES,
    option(
        "--output-site", "sites that results go to, as pegasus-plan's --output-sites (default: "
        "local)", "SITE,...", lambda text: ",".join(names(text)),
    ),
    option(
        "--data-configuration", "whether a site's jobs share their files, as Pegasus's property "
        "(default: that of properties or site catalog, else condorio, or sharedfs without a "
        "pegasus-plan on PATH)", choices=("sharedfs", "nonsharedfs", "condorio"),
    ),
    option(
        "--staging-site", "where jobs' files are staged, as pegasus-plan's --staging-site "
        "(default: where each job runs)", "SITE|SITE=SITE,...",
    ),
    option(
        "--order", "which waiting job starts first: by ADON's priorities (rank), or by "
        "Pegasus's", default="rank", choices=("rank", "pegasus"),
    ),
    # Whom to ask besides the catalogs.
    option(
        "--archive", "measurements of earlier runs (default: that of --config, else none)",
        "FILE_OR_URL",
    ),
    config("adon.yml: archive, network, broker and pool (default: none)", None),
    option(
        "--pool", "ask HTCondor for slots and queues (default: as adon.yml says; without an "
        "address the collector of CONDOR_CONFIG)", "HOST:PORT", _collector, nargs="?", const="",
    ),
    option(
        "--holdings", "what running applications hold beyond HTCondor's jobs, YAML (default: as "
        "adon.yml says)", "FILE", Path,
    ),
    broker_option("ask the broker for the network and what is reserved on it"),
    option(
        "--seed", "the same files, archive and seed give the same mapping", "N", whole(0, 10**9),
        default=0,
    ),
)  # fmt: skip


def add_inputs(parser: CommandParser, optional: bool = False) -> None:
    """The workflow with its catalogs, and what a mapping of it depends on."""
    option("workflow", WORKFLOW, "WORKFLOW", Path, nargs="?" if optional else None)(parser)
    for add in _INPUTS:
        add(parser)
    parser.set_defaults(cleanup="inplace")  # pegasus-plan's own
