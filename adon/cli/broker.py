"""``adon broker``: the broker, and what is done beside it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from adon.cli.output import print_json
from adon.cli.parsing import Noun, Nouns, add_handler, add_json, config, option
from network_provisioner.access import Role, hash_of, new_token

_TOKEN = Noun("token", "Tokens: who may ask the broker what.")
_CONFIG = config("adon.yml: network, controller and addresses")


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon broker`` with its verbs."""
    verbs: Nouns[Any] = add_handler(nouns, "broker", _run, _CONFIG).add_subparsers(metavar="[VERB]")
    add_handler(verbs, "openapi", _openapi)
    add_handler(verbs, "clear", _clear, _CONFIG)
    _TOKEN.add(verbs)


def _run(args: argparse.Namespace) -> int:
    """Run the broker: it grants, installs and takes back paths and bandwidth.

    Serves its REST API until Ctrl-C or TERM. Its rules stay on the switches, so traffic goes on
    while it is restarted or upgraded, until the transits' leases end. `adon broker clear` removes
    the rules.

    It listens on loopback. For others to reach it, adon.yml needs TLS and tokens: docs/security.md.

    Examples:
      adon broker --config examples/adon.yml      two paths, simulated switches, no root needed
      adon topology show                          in another terminal
    """
    from adon.service.serve import serve

    return serve(args.config, say=lambda line: print(line, flush=True))


def _clear(args: argparse.Namespace) -> int:
    """Remove all rules, groups, meters and queues of ADON from the switches.

    For good: nothing flows between sites any more unless the switches have other rules. Stop the
    broker first. Switches that do not connect are named, and keep what they have.
    """
    from adon.service.serve import clear_switches

    return clear_switches(args.config, say=print)


@_TOKEN.verb(
    "new",
    option("--name", "whose it is; a researcher's user name", "NAME", required=True),
    option("--role", "what it may do", required=True, choices=[str(role) for role in Role]),
    option("--expires", "such as 2027-01-01 (default: never)", "TIME"),
    option(
        "-o/--output", "write the token here, readable by its owner alone (default: print it)",
        "FILE", Path,
    ),
    add_json,
)  # fmt: skip
def _new_token(args: argparse.Namespace) -> int:
    """Make a token, and the entry of adon.yml that lets it in.

    The token is printed once and kept nowhere; adon.yml gets its hash. Its owner gives commands and
    hooks the file that has it (ADON_TOKEN_FILE).

    Roles:
      researcher   requests, renews and releases its own transits, saves templates
      engineer     everything, in any user's name
      operator     reads and releases every transit
      measurement  reads transits, counters and metrics
      agent        measures at an end of paths when the schedule says so

    Examples:
      adon broker token new --name ada --role researcher --output ada.token
      adon broker token new --name prometheus --role measurement --expires 2027-01-01
    """
    import yaml

    from adon.config.sections import TokenConfig
    from network_provisioner.base.schema import read

    token = new_token()
    entry = {"name": args.name, "role": args.role, "sha256": hash_of(token)}
    if args.expires is not None:
        entry["expires"] = args.expires
    read(TokenConfig, entry, "token")
    if args.output is not None:
        _write_secret(args.output, token)
    if args.json:
        print_json({"entry": entry, **({} if args.output else {"token": token})})
        return 0
    if args.output is None:
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
    """Print the description of the REST API (OpenAPI 3.1), as /openapi.json serves it."""
    from adon.service.monitoring import described
    from network_provisioner.api import description

    print_json(description(described()))
    return 0
