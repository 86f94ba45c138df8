"""``adon completion``: scripts with which a shell completes ADON's commands."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.options import credentials
from adon.cli.parsing import DEFAULT_BROKER, Noun, Nouns, one_of, option
from network_provisioner.base.errors import AdonError

if TYPE_CHECKING:
    from network_provisioner.client.broker import BrokerClient

_SHELLS = ("bash", "zsh", "tcsh")
_ANSWER_S = 1.0  # who presses Tab waits no longer
_MOST = 500  # names
_PLAIN = re.compile(r"[\w.:@+,/-]+")
_DRAINED = ("switch", "router", "link")  # what a named link is, between its halves
_NAMES: dict[str, Callable[[BrokerClient], Iterator[str]]] = {
    "elements": lambda broker: _elements(broker.topology()),
    "policies": lambda broker: (policy["id"] for policy in broker.policies()),
    "sites": lambda broker: (
        node["name"] for node in broker.topology()["nodes"] if node["kind"] == "site"
    ),
    "templates": lambda broker: (template["name"] for template in broker.templates()),
    "transits": lambda broker: (transit.id for transit in broker.list(ended=False, limit=_MOST)),
    "workflows": lambda broker: (
        row["id"] for row in broker.read(list, "GET", f"/v1/workflows?limit={_MOST}")
    ),
}
# What a command's argument names, by the argument, or by command and argument.
_KINDS = {
    "src": "sites",
    "dst": "sites",
    "template": "templates",
    "template name": "templates",
    "transit id": "transits",
    "policy name": "policies",
    "element": "elements",
    "workflow": "workflows",
}


NOUN = Noun("completion")


@NOUN.command(
    one_of(
        option("shell", "bash, zsh or tcsh", "SHELL", choices=_SHELLS, nargs="?"),
        option("--names", "print the broker's names, one per line", "KIND", choices=sorted(_NAMES)),
        required=True,
    )
)
def _run(args: argparse.Namespace) -> int:
    """Print a script with which your shell completes commands, options, files and names.

    The names of sites, switches, links, templates, transits, policies and workflows come from the
    broker of ADON_BROKER. The Debian package installs the script.

    Examples:
      eval "$(adon completion bash)"                                    in ~/.bashrc
      adon completion zsh > ~/.zfunc/_adon                              with ~/.zfunc in fpath
      adon completion tcsh > ~/.adon.tcsh; source ~/.adon.tcsh          in ~/.tcshrc
    """
    if args.names is not None:
        return _print_names(args.names)
    import shtab

    from adon.cli.main import build_parser

    parser = build_parser()
    _add_help(parser)
    for noun, action in _actions(parser):
        if action.type is Path:
            kind = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
            action.complete = kind  # type: ignore[attr-defined]
        elif names := _names_of(noun, action):
            action.complete = _completed_by(names)  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def _elements(topology: dict[str, Any]) -> Iterator[str]:
    """What can be drained."""
    kinds = {node["name"]: node["kind"] for node in topology["nodes"]}
    yield from (name for name, kind in kinds.items() if kind in _DRAINED)
    for link in topology["links"]:
        if "link" not in (kinds[link["a"]], kinds[link["b"]]):
            yield f"{link['a']}-{link['b']}"


def _add_help(parser: argparse.ArgumentParser) -> None:
    """``adon help COMMAND``, which :func:`adon.cli.main.main` makes ``COMMAND --help`` of."""
    (nouns,) = _below(parser)
    commands = list(nouns.choices.items())
    explained = nouns.add_parser("help", help="explain a command", add_help=False).add_subparsers()
    for name, noun in commands:
        again = explained.add_parser(name, help=noun.description, add_help=False)
        for verbs in _below(noun):  # shtab mixes further commands below with these
            again.add_argument("verb", choices=list(verbs.choices), help="VERB")


def _below(parser: argparse.ArgumentParser) -> list[Nouns[Any]]:
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _names_of(noun: str, action: argparse.Action) -> str:
    """Which names an argument takes, "" for none that the broker knows."""
    if action.metavar == "SITE":
        return "sites"
    noun_and_name = f"{noun} {action.dest}" if not action.option_strings else ""
    return _KINDS.get(noun_and_name) or _KINDS.get(action.dest, "")


def _completed_by(names: str) -> dict[str, Any]:
    """Functions of the shells that ask the broker; tcsh has none."""
    function, command = f"_adon_names_{names}", f"adon completion --names {names} 2>/dev/null"
    in_bash = f'compgen -W "$({command})" -- "$1"'
    in_zsh = f'local -a names; names=(${{(f)"$({command})"}}); compadd "$@" -a names'
    preamble = {"bash": f"{function}() {{ {in_bash}; }}", "zsh": f"{function}() {{ {in_zsh} }}"}
    return {"bash": function, "zsh": function, "preamble": preamble}


def _print_names(kind: str) -> int:
    """Nothing where the broker does not answer: a shell has no place for why."""
    from network_provisioner.client.broker import BrokerClient

    with suppress(AdonError, KeyError, TypeError):
        url = os.environ.get("ADON_BROKER") or DEFAULT_BROKER
        broker = BrokerClient(url, _ANSWER_S, *credentials())
        # A shell may run what stands in other characters: others choose these names.
        print("\n".join(filter(_PLAIN.fullmatch, _NAMES[kind](broker))))
    return 0


def _actions(
    parser: argparse.ArgumentParser, noun: str = ""
) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        yield noun, action
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _actions(inner, noun or name)
