"""``adon broker``: the broker, its tokens and its API description."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from adon.cli.output import print_fields, print_json
from adon.cli.parsing import (
    Noun,
    add_output,
    config,
    log_as,
    logging_options,
    option,
)
from network_provisioner.access import Role, hash_of, new_token

NOUN = Noun("broker")
_CONFIG = config("adon.yml with network, controller and addresses")


@NOUN.command(_CONFIG, logging_options)
def _run(args: argparse.Namespace) -> int:
    """Run the broker, which grants, installs and releases paths and bandwidth.

    It serves its REST API until Ctrl-C or SIGTERM. Its rules stay on the switches until the leases
    end, so a restart or an upgrade interrupts no traffic. 'adon broker clear' removes the rules.
    SIGHUP makes it read adon.yml again, with new links, capacities or templates; an adon.yml with
    errors is reported in the log, and changes nothing.

    By default it listens on loopback. To be reachable by others, it needs TLS and tokens in
    adon.yml (docs/security.md).

    Examples:
      adon broker --config examples/adon.yml      two paths, simulated switches, no root needed
      adon topology show                          in another terminal
    """
    from adon.service.serve import serve

    log_as(args)
    return serve(args.config, say=lambda line: print(line, flush=True))


@NOUN.verb("openapi")
def _openapi(args: argparse.Namespace) -> int:
    """Print the description of the REST API (OpenAPI 3.1), as /openapi.json serves it."""
    from adon.service.monitoring import documented_routes
    from network_provisioner.api import description

    print_json(description(documented_routes()))
    return 0


@NOUN.verb("alerts")
def _alerts(args: argparse.Namespace) -> int:
    """Print alerting rules for Prometheus; docs/runbook.md says what to do about each alarm.

    Examples:
      adon broker alerts > /etc/prometheus/adon.rules.yml
    """
    from importlib.resources import files

    print(files("adon.service").joinpath("alerts.yml").read_text(encoding="utf-8"), end="")
    return 0


@NOUN.verb("clear", _CONFIG)
def _clear(args: argparse.Namespace) -> int:
    """Remove all rules, groups, meters and queues of ADON from the switches.

    Afterwards nothing passes between sites unless the switches have other rules. Stop the broker
    first. Switches that do not connect are named and stay unchanged.
    """
    from adon.service.serve import clear_switches

    return clear_switches(args.config, say=print)


_TOKEN = NOUN.noun("token", "Create tokens, which identify callers and their roles.")


@_TOKEN.verb(
    "new",
    option("--owner", "owner of the token; for a researcher the user name", "NAME", required=True),
    option("--role", "role, see above", required=True, choices=[str(role) for role in Role]),
    option("--expires", "end of its validity, such as 2027-01-01 (default: never)", "TIME"),
    option(
        "-o/--output", "file for the token, readable by its owner only (default: print it)",
        "FILE", Path,
    ),
    add_output,
)  # fmt: skip
def _new_token(args: argparse.Namespace) -> int:
    """Create a token and its entry for adon.yml.

    The token is shown once and stored nowhere; adon.yml gets its hash. Its owner stores it in a
    file and names that file to commands and hooks (ADON_TOKEN_FILE).

    Roles:
      researcher   requests, renews and releases its own transits, saves templates
      engineer     everything, for any user
      operator     reads and releases all transits
      measurement  reads transits, counters and metrics
      agent        measures at one end of paths, as scheduled

    Examples:
      adon broker token new --owner ada --role researcher --output ada.token
      adon broker token new --owner prometheus --role measurement --expires 2027-01-01
    """
    import yaml

    from adon.config.sections import TokenConfig
    from network_provisioner.base.schema import read

    token = new_token()
    entry = {"name": args.owner, "role": args.role, "sha256": hash_of(token)}
    if args.expires is not None:
        entry["expires"] = args.expires
    read(TokenConfig, entry, "token")
    if args.output is not None:
        _write_secret(args.output, token)
    line = yaml.safe_dump([entry], sort_keys=False, default_flow_style=True, width=1000).strip()
    text = f"for adon.yml:\n\nsecurity:\n  tokens:\n    - {line[1:-1]}"
    record: dict[str, Any] = {"entry": entry}
    if args.output is None:
        record["token"] = token
        text = f"token, shown this once: {token}\n\n{text}"
    return print_fields(args, record, lambda: text)


def _write_secret(file: Path, text: str) -> None:
    # A new file: one that is there may be open to others, or be another's token.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(text + "\n")
