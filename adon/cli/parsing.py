"""The command line's parser, and the options that several commands share."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from network_provisioner.stores.database_url import place

DEFAULT_BROKER = "http://127.0.0.1:8470"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Descriptions as they are written; options and their help side by side."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, as all of ``adon``'s are."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Exit 2 with argparse's words and where the command is explained."""
        self.exit(2, f"adon: {' '.join(message.split())} (see '{self.prog} --help')\n")


Nouns = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns


def add_noun(nouns: Nouns[Any], name: str, doc: str | None) -> Nouns[Any]:
    """A command with verbs; its help is the module's docstring."""
    text = (doc or "").strip()
    noun = nouns.add_parser(name, help=_first(text), description=text)
    verbs: Nouns[Any] = noun.add_subparsers(dest="verb", required=True, metavar="VERB")
    return verbs


def add_command(
    parent: Nouns[Any],
    name: str,
    help_text: str | None,
    run: Callable[[argparse.Namespace], int],
    more: str = "",
) -> CommandParser:
    """A command that runs. ``help_text`` is its description, ``more`` follows its options."""
    text = (help_text or "").strip()
    parser: CommandParser = parent.add_parser(
        name, help=_first(text), description=text, epilog=more.strip() or None
    )
    parser.set_defaults(run=run)
    return parser


def _first(text: str) -> str:
    """The first paragraph as a line of a list: lower case, no full stop."""
    line = " ".join(text.partition("\n\n")[0].split()).removesuffix(".")
    return line[:1].lower() + line[1:]


def add_json(parser: CommandParser, what: str = "print JSON instead of text") -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help=what)


def add_broker(parser: CommandParser, json: str = "print JSON instead of text") -> None:
    """``--broker URL`` (or ADON_BROKER) and ``--json``, which does what ``json`` says."""
    parser.add_argument(
        "--broker",
        metavar="URL",
        default=os.environ.get("ADON_BROKER", DEFAULT_BROKER),
        help="the broker's address (ADON_BROKER; now %(default)s)",
    )
    add_json(parser, json)


def add_plot(parser: CommandParser, what: str) -> None:
    """``--plot FILE.html``."""
    parser.add_argument("--plot", type=_page, metavar="FILE.html", help=what)


def _page(text: str) -> Path:
    """An argument type: a file for a page."""
    if not text.lower().endswith((".html", ".htm")):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a name that ends in .html")
    return Path(text)


def add_inputs(parser: CommandParser, optional: bool = False) -> None:
    """The workflow with its catalogs, and what a mapping of it depends on."""
    parser.add_argument(
        "workflow", type=Path, metavar="WORKFLOW", nargs="?" if optional else None,
        help="abstract workflow (Pegasus 5 YAML)",
    )  # fmt: skip
    for name in ("sites", "replicas", "transformations"):
        parser.add_argument(
            f"--{name}", type=Path, metavar="FILE",
            help=f"{name[:-1]} catalog (default: as pegasus-plan finds it, else {name}.yml beside "
            "the workflow)",
        )  # fmt: skip
    parser.add_argument(
        "--conf", type=Path, metavar="FILE",
        help="Pegasus's properties, as pegasus-plan's --conf (also read: ~/.pegasusrc, and "
        "pegasus.properties here and beside the workflow)",
    )  # fmt: skip
    parser.add_argument(
        "--input-dir", dest="input_dirs", metavar="DIR,...", default=(),
        type=lambda text: tuple(map(Path, names(text))),
        help="directories of inputs on this machine, as pegasus-plan's --input-dir",
    )  # fmt: skip
    parser.add_argument(
        "--execution-sites", type=names, metavar="SITE,...",
        help="where jobs may run, as pegasus-plan's --sites (default: the site 'compute' where "
        "there is one, else every site but local)",
    )  # fmt: skip
    parser.add_argument(
        "--output-site", metavar="SITE,...", type=lambda text: ",".join(names(text)),
        help="sites that results go to, as pegasus-plan's --output-sites (default: local)",
    )  # fmt: skip
    parser.add_argument(
        "--data-configuration", choices=("sharedfs", "nonsharedfs", "condorio"),
        help="Pegasus's: whether a site's jobs share their files (default: of properties or site "
        "catalog, else condorio; sharedfs where no pegasus-plan is on PATH)",
    )  # fmt: skip
    parser.add_argument(
        "--staging-site", metavar="SITE|SITE=SITE,...",
        help="where jobs' files are staged, as pegasus-plan's --staging-site (default: where each "
        "job runs)",
    )  # fmt: skip
    parser.add_argument(
        "--order", default="rank", choices=("rank", "pegasus"),
        help="in which order jobs that wait are taken to start: by the priorities that ADON hands "
        "over, or by those that Pegasus gives (default: rank)",
    )  # fmt: skip
    add_sources(parser)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N",
        help="same files, archive and seed: same mapping (default: 0)",
    )  # fmt: skip


def add_sources(parser: CommandParser) -> None:
    """Whom to ask beside the catalogs: ``--archive``, ``--config``, ``--pool``, ``--broker``."""
    parser.add_argument(
        "--archive", type=place, metavar="FILE_OR_URL",
        help="measurements of earlier runs (default: believe the catalogs)",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="adon.yml: its archive, network, broker and pool (default: believe the catalogs)",
    )  # fmt: skip
    parser.add_argument(
        "--pool", nargs="?", const="", type=_collector, metavar="HOST:PORT",
        help="ask HTCondor for slots and queues (default: as adon.yml has it; without an address "
        "the collector of CONDOR_CONFIG)",
    )  # fmt: skip
    parser.add_argument(
        "--holdings", type=Path, metavar="FILE",
        help="what running applications hold beside what HTCondor tells, YAML (default: as "
        "adon.yml has it)",
    )  # fmt: skip
    parser.add_argument(
        "--broker", nargs="?", const=os.environ.get("ADON_BROKER", DEFAULT_BROKER), metavar="URL",
        help="ask the broker for the network and what is reserved on it (default: as adon.yml has "
        "it; without an address %(const)s)",
    )  # fmt: skip


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


def names(text: str) -> list[str]:
    """An argument type: names between commas."""
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected names between commas")
    return list(dict.fromkeys(names))


def whole(least: int, most: int) -> Callable[[str], int]:
    """An argument type: a whole number from ``least`` to ``most``."""

    def parse(text: str) -> int:
        if text.strip().isdecimal() and len(text) <= 20 and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a whole number from {least} to {most}"
        )

    return parse
