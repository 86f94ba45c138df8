"""``adon pool explain``: why the pool was made larger or smaller."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.output import print_json, wrapped
from adon.cli.parsing import Nouns, add_command, add_json, whole
from network_provisioner.base.errors import BrokerError

if TYPE_CHECKING:
    from adon.config.sections import Config

_EXPLAIN = """Say why machines were started and let go, or were not: the newest decision last.

Asks the broker, or where none answers its archive.
"""
_EXPLAIN_MORE = """
Examples:
  adon pool explain --config /etc/adon.yml
  adon pool explain --last 1 --json
"""
_BROKER_S = 5.0
_UNANSWERED = frozenset({"unreachable", "bad_answer", "archive_unavailable"})


def add(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``explain`` to the verbs of ``adon pool``."""
    parser = add_command(verbs, "explain", _EXPLAIN, _explain, _EXPLAIN_MORE)
    parser.add_argument(
        "--config", type=Path, default=Path("adon.yml"), metavar="FILE",
        help="adon.yml, for its broker and archive (default: ./%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--last", type=whole(1, 1000), default=10, metavar="N",
        help="so many decisions (default: %(default)s)",
    )  # fmt: skip
    add_json(parser)


def _explain(args: argparse.Namespace) -> int:
    from adon.config.adon_yml import load_config

    found = _decisions(load_config(args.config), args.last)
    if args.json:
        print_json({"decisions": found})
    elif found:
        print("\n\n".join(map(_lines, found)))
    else:
        print(
            "nothing was decided about the pool yet: 'adon pool run' does so, which 'adon install "
            "condor --expander' has condor_master run"
        )
    return 0


def _decisions(config: Config, last: int) -> list[dict[str, Any]]:
    """As ``GET /v1/decisions`` has them, the newest last."""
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.client.credentials import from_environment

    token, tls = from_environment(os.environ)
    broker = BrokerClient(config.broker_url, _BROKER_S, config.broker.token or token, tls)
    try:
        found = broker.call("GET", f"/v1/decisions?kind=pool&limit={last}")["decisions"]
    except BrokerError as error:
        if error.code not in _UNANSWERED:
            raise
        found = _archived(config.broker.archive, last)
    return list(reversed(found))


def _archived(where: str, last: int) -> list[dict[str, Any]]:
    from adon.cli.archive import opened
    from adon.dashboard.decisions import of_pool_decision
    from monitors.archive.archive import Selection

    if "://" not in where and not Path(where).exists():
        return []  # nobody has recorded anything
    with opened(where) as archive:
        page = archive.page(Selection(("pool_decision",)), newest=True, limit=last)
    return [asdict(of_pool_decision(one)) for _, one in page]


def _lines(decision: dict[str, Any]) -> str:
    """One decision, with a line for each reason."""
    from adon.cli.archive import utc

    told = decision["details"]
    lines = [
        f"{utc(decision['at'])}  {decision['subject']}: {decision['outcome']}",
        f"  jobs: {told['demand'] or 'none'}; machines: {told['machines'] or 'none'}",
    ]
    for row in decision["choices"]:
        done = f" {row['done']}" if row["done"] else ""
        lines.append(f"  {row['what']}{done}: {row['why'] or 'nothing was written down'}")
    for flavour, at in told["matched"].items():
        lines.append(f"  {flavour}: HTCondor last had a job for one at {utc(at)}")
    return "\n".join(map(wrapped, lines))
