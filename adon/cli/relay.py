"""Relays: agents that carry the connections of transits over the wide area (SOS)."""

from __future__ import annotations

import argparse
import logging
import os
import resource

from adon.cli.options import answered_records, client
from adon.cli.output import Column
from adon.cli.parsing import Noun, add_broker, add_output, option
from network_provisioner.base.errors import InputError

NOUN = Noun("relay", __doc__)
add = NOUN.add
_TIMEOUT_S = 1.2  # for the broker's answer: it takes a third of a second where there is no news
_COLUMNS = (
    Column("name", "relay"),
    Column("switch", "at"),
    Column("address"),
    Column("transits", "transits>"),
    Column("connections", "connections>"),
    Column("unready", "state", lambda why: str(why or "ready")),
)


@NOUN.verb(
    "run",
    option("--name", "its node in the topology", "NAME", required=True),
    option("--address", "its own address in the data plane", "IP", required=True),
    option("--broker", "the broker's address", "URL", required=True),
)
def _run(args: argparse.Namespace) -> int:
    """Run an agent near a site: it carries connections of hosts there over the wide area.

    It has the name of a node of kind 'relay' in the broker's topology, and needs root
    (CAP_NET_ADMIN), nft and ip. The broker says which connections, and knows it by the token in
    ADON_TOKEN_FILE, or by ADON_CERTIFICATE and ADON_KEY, which streams by TLS need, too (ADON_CA:
    who signs them). Ctrl-C or TERM ends it, and resets the connections under way.

    Examples:
      adon relay run --name relay-mu --address 192.0.2.7 --broker https://broker:8470

    Exit codes: 0 stopped; 2 bad arguments or files.
    """
    from ipaddress import IPv4Address
    from urllib.parse import urlsplit

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


@NOUN.verb("list", add_broker, add_output)
def _list(args: argparse.Namespace) -> int:
    """List the relays of the network: whether each can be used, and what it carries.

    'adon transit explain' says of a transit which relays carry it, or why none do.
    """
    none = "no relays: the topology has no node of kind relay"
    relays = client(args).call("GET", "/v1/relays")
    return answered_records(args, "list of relays", _COLUMNS, relays, none=none)
