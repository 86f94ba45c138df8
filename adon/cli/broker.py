"""Run the broker: it grants, installs and takes back paths and bandwidth.

Serves its REST API until it is told to stop (Ctrl-C or TERM). Its rules stay on the switches, so
traffic goes on while it is restarted or upgraded, until the transits' leases end. `adon broker
clear` removes the rules.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from adon.cli.output import print_json
from adon.cli.parsing import Nouns, add_command, add_json, add_noun
from network_provisioner.access import Role, hash_of, new_token

_MORE = """
Examples:
  adon broker --config examples/adon.yml      two paths, simulated switches, no root needed
  adon topology show                          in another terminal

It listens on loopback. For others to reach it, adon.yml needs TLS and tokens: docs/security.md.
"""
_TOKEN = """Tokens: who may ask the broker what."""
_NEW = """Make a token, and the entry of adon.yml that lets it in.

The token is printed once and kept nowhere; adon.yml gets its hash. Whoever holds the token gives
commands and hooks the file that has it (ADON_TOKEN_FILE).
"""
_NEW_MORE = """
Examples:
  adon broker token new --name ada --role researcher --file ada.token
  adon broker token new --name prometheus --role measurement --expires 2027-01-01

Roles:
  researcher   requests, renews and releases its own transits, saves templates
  engineer     everything, in any user's name
  operator     reads and releases every transit
  measurement  reads transits, counters and metrics
  agent        measures at an end of paths when the schedule says so
"""
_CLEAR = """Remove all rules, groups, meters and queues of ADON from the switches.

For good: nothing flows between sites any more unless the switches have other rules. The broker has
to be stopped first. Switches that do not connect are named, and keep what they have.
"""
_OPENAPI = """Print the description of the REST API (OpenAPI 3.1), as /openapi.json serves it."""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon broker`` with its verbs."""
    parser = add_command(nouns, "broker", __doc__, _run, _MORE)
    parser.add_argument(
        "--config", type=Path, default=Path("adon.yml"), metavar="FILE",
        help="network, controller and addresses (default: ./%(default)s)",
    )  # fmt: skip
    verbs: Nouns[Any] = parser.add_subparsers(metavar="[VERB]")
    add_command(verbs, "openapi", _OPENAPI, _openapi)
    clear = add_command(verbs, "clear", _CLEAR, _clear)
    clear.add_argument(
        "--config", type=Path, default=Path("adon.yml"), metavar="FILE",
        help="network and controller (default: ./%(default)s)",
    )  # fmt: skip
    new = add_command(add_noun(verbs, "token", _TOKEN), "new", _NEW, _new_token, _NEW_MORE)
    new.add_argument("--name", required=True, help="whose it is; a researcher's user name")
    new.add_argument(
        "--role", required=True, choices=[str(role) for role in Role], help="what it may do"
    )
    new.add_argument("--expires", metavar="TIME", help="such as 2027-01-01 (default: never)")
    new.add_argument(
        "--file", type=Path, metavar="FILE",
        help="write the token there, readable by its owner alone, and do not print it",
    )  # fmt: skip
    add_json(new)


def _run(args: argparse.Namespace) -> int:
    from adon.service.serve import serve

    return serve(args.config, say=lambda line: print(line, flush=True))


def _clear(args: argparse.Namespace) -> int:
    from adon.service.serve import clear_switches

    return clear_switches(args.config, say=print)


def _new_token(args: argparse.Namespace) -> int:
    import yaml

    from adon.config.sections import TokenConfig
    from network_provisioner.base.schema import read

    token = new_token()
    entry = {"name": args.name, "role": args.role, "sha256": hash_of(token)}
    if args.expires is not None:
        entry["expires"] = args.expires
    read(TokenConfig, entry, "token")
    if args.file is not None:
        _write_secret(args.file, token)
    if args.json:
        print_json({"entry": entry, **({} if args.file else {"token": token})})
        return 0
    if args.file is None:
        print(f"token, shown this once: {token}\n")
    line = yaml.safe_dump([entry], sort_keys=False, default_flow_style=True, width=1000).strip()
    print(f"for adon.yml:\n\nsecurity:\n  tokens:\n    - {line[1:-1]}")
    return 0


def _write_secret(file: Path, text: str) -> None:
    # A new file: one that is there may be open to others, or be another's token.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(text + "\n")


def _openapi(args: argparse.Namespace) -> int:
    from adon.service.monitoring import described
    from network_provisioner.api import description

    print_json(description(described()))
    return 0
