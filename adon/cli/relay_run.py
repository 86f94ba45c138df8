"""``adon relay run``."""

from __future__ import annotations

import argparse
import logging
import os
import resource
from typing import Any

from adon.cli.parsing import Nouns, add_command

_TIMEOUT_S = 1.2  # for the broker's answer: it takes a third of a second where there is no news
_HELP = """Run an agent near a site: it carries connections of hosts there over the wide area.

It has the name of a node of kind 'relay' in the broker's topology, and needs root (CAP_NET_ADMIN),
nft and ip. The broker says which connections, and knows it by the token in ADON_TOKEN_FILE, or by
ADON_CERTIFICATE and ADON_KEY, which streams by TLS need, too (ADON_CA: who signs them). It ends
with Ctrl-C or TERM, and connections under way are reset then.
"""
_MORE = """
Examples:
  adon relay run --name relay-mu --address 192.0.2.7 --broker https://broker:8470

Exit codes: 0 stopped; 2 bad arguments or files.
"""


def add(verbs: Nouns[Any]) -> None:
    """Add the verb."""
    run = add_command(verbs, "run", _HELP, _run, _MORE)
    run.add_argument("--name", required=True, help="its node in the topology")
    run.add_argument(
        "--address", required=True, metavar="IP", help="its own address in the data plane"
    )
    run.add_argument("--broker", required=True, metavar="URL", help="the broker's address")


def _run(args: argparse.Namespace) -> int:
    from ipaddress import IPv4Address
    from urllib.parse import urlsplit

    from network_provisioner.base.errors import InputError
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.client.credentials import from_environment
    from network_provisioner.relay.run import contexts_of, run

    try:
        address = str(IPv4Address(args.address))
    except ValueError:
        raise InputError(f"--address: found {args.address!r}, expected an IPv4 address") from None
    url = urlsplit(args.broker)
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise InputError(
            f"--broker: found {args.broker!r}, expected https: others would read its secrets"
        )
    token, tls = from_environment(os.environ)
    broker, contexts = BrokerClient(args.broker, _TIMEOUT_S, token, tls), contexts_of(tls)
    logging.basicConfig(level=logging.INFO, format="adon: %(message)s")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"relay {args.name} at {address}; asks {args.broker}", flush=True)
    run(args.name, address, broker, contexts)
    return 0
