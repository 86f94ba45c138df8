"""Run and list relays, which carry TCP connections of transits over the wide area (SOS)."""

from __future__ import annotations

import argparse
import os
import resource

from adon.cli.live import watch
from adon.cli.options import client
from adon.cli.output import Column, print_records
from adon.cli.parsing import Noun, add_broker, add_output, log_as, logging_options, option
from network_provisioner.base.errors import InputError

NOUN = Noun("relay", __doc__)
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
    option("--node", "name of its node in the topology", "NODE", required=True),
    option("--address", "its address on the data plane", "IP", required=True),
    option("--broker", "the broker's address", "URL", required=True),
    logging_options,
)
def _run(args: argparse.Namespace) -> int:
    """Run a relay's agent near a site, which carries connections of hosts there.

    Its name is that of a node of kind 'relay' in the broker's topology. It needs root
    (CAP_NET_ADMIN), nft and ip. It authenticates to the broker with the token in ADON_TOKEN_FILE,
    or with ADON_CERTIFICATE and ADON_KEY, which TLS between relays needs, too (ADON_CA: their CA).
    Ctrl-C or SIGTERM ends it and resets its connections.

    Examples:
      adon relay run --node relay-mu --address 192.0.2.7 --broker https://broker:8470

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
    try:
        url = urlsplit(args.broker)
    except ValueError as error:
        raise InputError(f"--broker: found {args.broker!r}: {error}, expected a URL") from None
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise InputError(
            f"--broker: found {args.broker!r}, expected https: others would read its secrets"
        )
    token, tls = from_environment(os.environ)
    broker, contexts = BrokerClient(args.broker, _TIMEOUT_S, token, tls), contexts_of(tls)
    log_as(args)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"relay {args.node} at {address}; asks {args.broker}", flush=True)
    run(args.node, address, broker, contexts)
    return 0


@NOUN.verb("list", add_broker, add_output, watch)
def _list(args: argparse.Namespace) -> int:
    """List the network's relays, whether they are ready, and what they carry.

    'adon transit explain' shows which relays carry a transit, or why none do.
    """
    none = "no relays: the topology has no node of kind relay"
    relays = client(args).read(list, "GET", "/v1/relays")
    return print_records(args, _COLUMNS, relays, none=none)
