"""P3, over HTTP: from a client's question to its answer, 64 clients asking at once.

The broker is a process of its own, with the simulated controller and SQLite. Every client opens a
connection for each call, as hooks do, and asks again as soon as it was answered; so the broker
always has as many calls before it as there are clients, and what one waits is mostly the others.
The peer is one client alone: what a call costs by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient
from tests.bench import Figure, Tell, bench, percentiles
from tests.http_load import PATIENT_S, SITES, broker_process

CLIENTS = 64
ROUNDS = 15  # of each client
ALONE = 200


def rounds(url: str, number: int, count: int) -> list[tuple[float, float, float]]:
    """Seconds of ``count`` requests, renewals and releases of one client."""
    broker, random = BrokerClient(url, PATIENT_S), Random(number)
    took = []
    for turn in range(count):
        src, dst = random.sample(range(SITES), 2)
        # Little, so that there is room for all and what is measured is not waiting for room.
        request = TransitRequest(
            f"{number}.{turn}", f"d{src}", f"d{dst}", min_bps=1e6, max_bps=2e6, template="bulk"
        )
        times = [time.perf_counter()]
        for call in (
            lambda request=request: broker.request(request),
            lambda request=request: broker.renew(request.id, 9000.0),
            lambda request=request: broker.release(request.id, 10**9, 80.0, "success"),
        ):
            call()
            times.append(time.perf_counter())
        took.append((times[1] - times[0], times[2] - times[1], times[3] - times[2]))
    return took


@bench("P3")
def over_http(tell: Tell) -> Iterable[Figure]:
    """Latencies of requests and releases, and how many calls are answered in a second."""
    with tempfile.TemporaryDirectory() as folder, broker_process(Path(folder)) as url:
        tell(f"one client alone, {ALONE} rounds")
        alone = rounds(url, 1000, ALONE)
        tell(f"{CLIENTS} clients at once, {ROUNDS} rounds each")
        started = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            results = pool.map(lambda number: rounds(url, number, ROUNDS), range(CLIENTS))
            together = [row for took in results for row in took]
        elapsed = time.perf_counter() - started
    for column, name in ((0, "request"), (2, "release")):
        yield from percentiles(
            f"{name} over HTTP, {CLIENTS} clients at once",
            "ms",
            [1e3 * row[column] for row in together],
            {"one client alone": [1e3 * row[column] for row in alone]},
        )
    yield Figure(
        f"calls answered over HTTP, {CLIENTS} clients at once",
        3 * len(together) / elapsed,
        "per second",
        better="higher",
    )
