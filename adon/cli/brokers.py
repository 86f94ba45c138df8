"""Speaking to the broker from the command line."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from network_provisioner.client.broker import BrokerClient

_TIMEOUT_S = 10.0  # a person waits longer than a hook may: installing a path can take seconds


def client(args: argparse.Namespace) -> BrokerClient:
    """The broker that ``--broker`` names, with what ``client.credentials`` finds.

    Raises InputError.
    """
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.client.credentials import from_environment

    return BrokerClient(args.broker, _TIMEOUT_S, *from_environment(os.environ))


@contextlib.contextmanager
def bad_answer(args: argparse.Namespace, what: str) -> Iterator[None]:
    """Taking apart what a broker sent: whatever does not fit is its fault. Raises BrokerError."""
    from network_provisioner.base.errors import BrokerError

    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BrokerError(
            f"the broker at {args.broker} sent an answer that is no {what} "
            f"({type(error).__name__} {error}): is it an ADON broker of this version?",
            "bad_answer",
        ) from None
