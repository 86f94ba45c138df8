"""P3, the leader: how long nobody decides when the broker that leads is killed.

Two brokers on one PostgreSQL, with simulated switches. The leader is killed with signal 9, again
and again; what is measured is the time until the other one has granted a transit. Then every
transit that was granted has to be there, and none twice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from adon.machine import packages
from examples.testbed.postgres import Postgres
from network_provisioner.base.model import TransitRequest, TransitState
from tests.bench import Figure, Tell, bench, percentiles
from tests.two_brokers import TwoBrokers

KILLS = 50


def seconds_without_leader(brokers: TwoBrokers, tell: Tell) -> list[float]:
    """How long each takeover took, until a transit was granted."""
    spent, granted = [], set()
    for number in range(KILLS):
        tell(f"kill {number + 1} of {KILLS}")
        old = brokers.leader()
        client, request = brokers.client(1 - old), TransitRequest(f"t{number}", "mu", "tacc", 10**9)
        brokers.kill(old)
        began = time.perf_counter()
        transit = client.request(request)
        spent.append(time.perf_counter() - began)
        if transit.state is TransitState.INSTALLED:
            granted.add(transit.id)
        brokers.start(old)
        if number % 5 == 4:  # or the link is full
            client.release(transit.id)
    states = {t.id: t.state for t in client.list()}
    if lost := granted - states.keys():
        raise AssertionError(f"granted and lost: {lost}")
    return spent


@bench("P3")
def leader(tell: Tell) -> Iterable[Figure]:
    """How long nobody decides when the leader is killed."""
    programs = packages.ensure("postgresql", progress=tell) / "wrap"
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        with Postgres(folder / "pg", programs, durable=True) as server:
            brokers = TwoBrokers(folder, server.url)
            try:
                brokers.start(0, 1)
                yield from percentiles(
                    "killed leader to the next one's first grant", "s",
                    seconds_without_leader(brokers, tell), {},
                )  # fmt: skip
            finally:
                brokers.stop()
