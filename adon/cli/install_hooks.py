"""What the hooks of an installation are told: their broker, and what shows them to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.parsing import DEFAULT_BROKER

if TYPE_CHECKING:
    from network_provisioner.client.hookconfig import HookConfig

# Every user's own, made when the first workflow runs.
WATCH_FOLDER = "~/.local/state/adon/watch"


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--broker``, ``--token-file``, ``--ahead``."""
    parser.add_argument(
        "--broker", metavar="URL",
        help=f"whom the hooks ask (default: the broker of --config, else {DEFAULT_BROKER})",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", metavar="FILE",
        help="file with what they show it, where it asks for a token; ~ is each user's home",
    )  # fmt: skip
    parser.add_argument(
        "--ahead", action="store_true",
        help="reserve for whole workflows in advance, as far as the plan tells",
    )  # fmt: skip


def hook_config(args: argparse.Namespace) -> HookConfig:
    """The hooks' configuration. Raises InputError for what is no URL."""
    from adon.config.adon_yml import load_config
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.client.hookconfig import HookConfig
    from network_provisioner.stores.database_url import place

    broker, archive = args.broker, None
    if args.config is not None:
        loaded = load_config(args.config)
        scheme = "http" if loaded.security.tls is None else "https"
        broker = broker or f"{scheme}://{loaded.broker.listen}"
        archive = str(place(loaded.broker.archive, args.config.parent.absolute()))
    broker = broker or DEFAULT_BROKER
    BrokerClient(broker)
    token = args.token_file
    if token is not None and not token.startswith("~"):
        token = str(Path(token).absolute())
    return HookConfig(
        broker=broker, archive=archive, token_file=token, watch=WATCH_FOLDER, ahead=args.ahead
    )


def notes(args: argparse.Namespace) -> Iterator[str]:
    """Whether the broker answers now; it need not."""
    from network_provisioner.base.errors import AdonError
    from network_provisioner.client.hookclient import client_of

    try:
        client_of(hook_config(args)).health()
    except AdonError as error:
        yield f"{error}; until that changes transfers go without a path"
