"""Asking what runs now: HTCondor for its pool, the broker for its network.

Site selection is better off with the answers and works without them. Whoever does not answer is
named in one line, and the catalogs and the archive are used instead.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from condor_plugins.pool.sitepool import SitePool, pool_from_json
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.client.broker import BrokerClient
from network_provisioner.topology.graph import Link, Node, Topology
from site_selector.estimates.running import Live

Say = Callable[[str], None]

_POOL_TIMEOUT_S = 15.0  # a collector that drops packets lets the bindings wait much longer
BROKER_TIMEOUT_S = 2.0


def ask(
    pool: str | None,
    broker: BrokerClient | None,
    *,
    topology: Topology | None = None,
    say: Say | None = None,
    broker_may_rest: bool = False,
) -> Live:
    """Ask the collector ``pool`` (``host:port``, "" for that of CONDOR_CONFIG, None for nobody) and
    the ``broker`` (None for nobody).

    ``topology`` is what is believed of the network where the broker does not answer, about which
    nothing is said where it ``broker_may_rest``.
    """
    tell = say or (lambda _: None)
    told = None
    if pool is not None:
        try:
            told = ask_pool(pool)
        except AdonError as error:
            tell(f"{error}; the archive and the catalogs are used instead")
    if broker is not None:
        try:
            found, used = ask_network(broker)
            return Live(told, found, used, "what is reserved now (broker)")
        except BrokerError as error:
            if not (broker_may_rest and error.code == "unreachable"):
                tell(f"{error}; the network is taken as {'idle' if topology else 'the catalogs'}")
    return Live(told, topology)


def ask_pool(collector: str) -> dict[str, SitePool]:
    """Every site of the pool now. Raises AdonError where HTCondor cannot be asked.

    In a process of its own: the bindings read their configuration once, and wait as long as they
    like for a collector that does not answer.
    """
    where = f"HTCondor at {collector}" if collector else "HTCondor"
    words = [
        sys.executable,
        "-P",
        "-m",
        "condor_plugins.collector",
        *([collector] * bool(collector)),
    ]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_POOL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise AdonError(f"{where} did not answer within {_POOL_TIMEOUT_S:g} s") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise AdonError(f"{where} did not answer: {why.rstrip('.')}")
    found = pool_from_json(done.stdout)
    if not any(site.slots for site in found.values()):
        raise AdonError(
            f"{where} has no slot that names its site (AdonSite or PegasusSite of its startd)"
        )
    return found


def ask_network(broker: BrokerClient) -> tuple[Topology, dict[tuple[str, str], float]]:
    """The broker's network, and what is reserved on each directed link now in bits per second.

    Raises BrokerError.
    """
    data = broker.topology()
    try:
        return network_from_broker(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BrokerError(
            f"the broker at {broker.url} sent an answer that is not a topology "
            f"({type(error).__name__} {error}): is it an ADON broker of this version?",
            "bad_answer",
        ) from None


def network_from_broker(
    data: Mapping[str, Any],
) -> tuple[Topology, dict[tuple[str, str], float]]:
    """What ``GET /v1/topology`` answers, as a topology and what is reserved on its links.

    Raises InputError where the network is none, KeyError, TypeError or ValueError where the answer
    is something else.
    """
    links = [
        Link(
            str(item["a"]),
            str(item["b"]),
            float(item["capacity_bps"]),
            float(item["delay_s"]),
            float(item["loss"]),
            str(item["layer"]),
        )
        for item in data["links"]
    ]
    nodes = [Node(str(item["name"]), str(item["kind"])) for item in data["nodes"]]
    used = {
        (str(load["from"]), str(load["to"])): float(load["reserved_bps"])
        for item in data["links"]
        for load in item["load"]
    }
    return Topology(nodes, links), used
