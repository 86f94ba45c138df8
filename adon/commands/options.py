"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from network_provisioner.client import BrokerClient

DEFAULT_BROKER = "http://127.0.0.1:8470"


def add_broker(parser: argparse.ArgumentParser) -> None:
    """``--broker URL`` (or ADON_BROKER) and ``--json``."""
    parser.add_argument(
        "--broker",
        metavar="URL",
        default=os.environ.get("ADON_BROKER", DEFAULT_BROKER),
        help="the broker's address (ADON_BROKER, default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def client(args: argparse.Namespace) -> BrokerClient:
    """The broker client that the options name."""
    from network_provisioner.client import BrokerClient

    return BrokerClient(args.broker, timeout_s=5.0, token=os.environ.get("ADON_TOKEN"))
