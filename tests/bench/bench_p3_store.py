"""P3, the store: what it costs to write one transit as the leader.

The peer of PostgreSQL is the SQLite file, which has one broker only. The server writes through to
the disk, as one would have it. Then a broker in a process of its own grants and takes back on the
database, as fast as it can, in one thread; and once more while another one follows.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import network_provisioner.stores.postgres as postgres_store
from adon.machine import packages
from adon.service.leading import ELECT_EVERY_S
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

WRITES = 1000
REQUESTS = 200
LEASE_S = 600.0  # nobody renews it here


def milliseconds_per_write(store: Store) -> list[float]:
    """How long it takes to see that one leads, and to write."""
    spent = []
    path = ["site0", "switch0", "switch1", "site1"]
    for number in range(WRITES):
        transit = made_transit(f"{number}", path[0], path[-1], TransitState.HELD, path=path)
        store.elect()  # renews the lease, which is shorter than all writes take
        began = time.perf_counter()
        store.check_leads()
        store.put(transit)
        spent.append(1e3 * (time.perf_counter() - began))
    store.resign()
    store.close()
    return spent


def _leader(url: str, done: Queue[float], go: Event) -> None:
    postgres_store.LEASE_S = LEASE_S
    topology = make_network()
    broker = Broker(
        topology, templates_from_dict(TEMPLATES), SimulatedController(topology), open_store(url)
    )
    broker.start()
    done.put(0.0)  # it leads
    go.wait()
    began = time.perf_counter()
    for number in range(REQUESTS):
        ask = TransitRequest(
            f"{began}-{number}", "site0", "site1", 10**9, template="small", lease_s=600
        )
        transit = broker.request(ask)
        if transit.state is not TransitState.INSTALLED:
            raise AssertionError(f"{transit.state}: {transit.reason}")
        broker.release(ask.id)
    done.put(REQUESTS / (time.perf_counter() - began))
    broker.stop()


def _follower(url: str, stop: Event) -> None:
    store = open_store(url)
    while not stop.wait(ELECT_EVERY_S):
        store.elect()
    store.close()


def grants_per_second(url: str, followers: int) -> float:
    """How many transits the leader grants and takes back in a second."""
    context = multiprocessing.get_context("spawn")
    done: Queue[float] = context.Queue()
    go, stop = context.Event(), context.Event()
    leader = context.Process(target=_leader, args=(url, done, go))
    others = [context.Process(target=_follower, args=(url, stop)) for _ in range(followers)]
    leader.start()
    done.get(timeout=120)
    for other in others:
        other.start()
    go.set()
    rate = done.get(timeout=120)
    stop.set()
    for process in (leader, *others):
        process.join()
    return rate


@bench("P3")
def stores(tell: Tell) -> Iterable[Figure]:
    """One write as the leader; what a second broker on the database costs."""
    with tempfile.TemporaryDirectory(prefix="adon-bench-") as name:
        folder = Path(name)
        tell(f"{WRITES} writes in an SQLite file")
        file = milliseconds_per_write(open_store(folder / "state.sqlite"))
        programs = packages.ensure("postgresql", progress=tell) / "wrap"
        with Postgres(folder / "pg", programs, durable=True) as server:
            tell(f"{WRITES} writes in PostgreSQL")
            database = milliseconds_per_write(open_store(server.url))
            yield from percentiles("one write in PostgreSQL", "ms", database, {"SQLite": file})
            rates = {}
            for followers in (0, 1):
                tell(f"{REQUESTS} transits, {followers} other brokers")
                rates[followers] = grants_per_second(server.url, followers)
            yield Figure(
                "transits granted and taken back on a database that two brokers share",
                rates[1],
                "per second",
                better="higher",
                peers={"one broker": rates[0]},
            )
