"""P3, the store: what it costs to have the turn to decide and to write one transit in it.

The peer of PostgreSQL is the SQLite file, which has one broker only. The server writes through to
the disk, as one would have it. Then two brokers in processes of their own grant and take back on
one database, as fast as they can, each in one thread.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterable
from multiprocessing.queues import Queue
from pathlib import Path

from adon.machine import packages
from examples.testbed.postgres import Postgres
from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.broker import Broker
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.stores.opening import open_store
from network_provisioner.stores.store import Store
from network_provisioner.templates.data import templates_from_dict
from tests.bench import Figure, Tell, bench, percentiles
from tests.bench.bench_p3_request import TEMPLATES, make_network
from tests.made_transit import made_transit

TURNS = 1000
REQUESTS = 200  # of each broker


def milliseconds_per_turn(store: Store) -> list[float]:
    """How long turns with one write take."""
    spent = []
    path = ["site0", "switch0", "switch1", "site1"]
    for number in range(TURNS):
        transit = made_transit(f"{number}", path[0], path[-1], TransitState.HELD, path=path)
        began = time.perf_counter()
        with store.turn():
            store.put(transit)
        spent.append(1e3 * (time.perf_counter() - began))
    store.close()
    return spent


def _broker(name: str, url: str, done: Queue[float]) -> None:
    topology = make_network()
    broker = Broker(
        topology, templates_from_dict(TEMPLATES), SimulatedController(topology), open_store(url)
    )
    broker.start()
    done.put(0.0)  # ready
    began = time.perf_counter()
    for number in range(REQUESTS):
        ask = TransitRequest(
            f"{name}{number}", "site0", "site1", 10**9, template="small", lease_s=600
        )
        transit = broker.request(ask)
        if transit.state is not TransitState.INSTALLED:
            raise AssertionError(f"{transit.state}: {transit.reason}")
        broker.release(ask.id)
    done.put(time.perf_counter() - began)
    broker.stop()


def grants_per_second(url: str, brokers: int) -> float:
    """How many transits all brokers together grant and take back in a second."""
    context = multiprocessing.get_context("spawn")
    done: Queue[float] = context.Queue()
    processes = [
        context.Process(target=_broker, args=(f"{n}of{brokers}-", url, done))
        for n in range(brokers)
    ]
    for process in processes:
        process.start()
    spent = [done.get(timeout=40) for _ in range(2 * brokers)]
    for process in processes:
        process.join()
    return brokers * REQUESTS / max(spent)


@bench("P3")
def stores(tell: Tell) -> Iterable[Figure]:
    """A turn with one write; two brokers on one database."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        tell(f"{TURNS} turns in an SQLite file")
        file = milliseconds_per_turn(open_store(folder / "state.sqlite"))
        programs = packages.ensure("postgresql", progress=tell) / "wrap"
        with Postgres(folder / "pg", programs, durable=True) as server:
            tell(f"{TURNS} turns in PostgreSQL")
            database = milliseconds_per_turn(open_store(server.url))
            yield from percentiles(
                "turn with one write in PostgreSQL", "ms", database, {"SQLite": file}
            )
            rates = {}
            for brokers in (1, 2):
                tell(f"{brokers} brokers, {REQUESTS} transits each")
                rates[brokers] = grants_per_second(f"{server.url}", brokers)
            yield Figure(
                "transits that two brokers on one database grant and take back",
                rates[2],
                "per second",
                better="higher",
                peers={"one broker on it": rates[1]},
            )
