"""A broker as a process of its own, and many clients at once that ask it for anything at random.

What every client was told is written down, and judged by itself: nothing here uses the broker's
own reckoning of what is reserved.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from examples.testbed.ports import free_port
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import ENDED, LIVE, Transit, TransitRequest
from network_provisioner.client.broker import BrokerClient

PATIENT_S = 120.0
SITES = 6
LEASE_S = 3600.0  # longer than any run: what ends, ends because somebody said so
# Refusals that a client may get for what it asked; anything else is a fault.
REFUSALS = {"impossible_rate", "conflict", "bad_time", "unknown_transit"}


def network() -> dict[str, Any]:
    """Six sites at switches in a ring with two chords: several paths between any two."""
    ring = [(f"s{i}", f"s{(i + 1) % SITES}") for i in range(SITES)]
    rungs = [("s0", "s3"), ("s1", "s4")]
    ports: Counter[str] = Counter()

    def port(switch: str) -> int:
        ports[switch] += 1
        return ports[switch]

    nodes: list[dict[str, Any]] = [
        {"name": f"d{i}", "kind": "site", "address": f"10.9.0.{i + 1}",
         "mac": f"02:00:00:00:00:{i + 1:02x}"}
        for i in range(SITES)
    ]  # fmt: skip
    nodes += [{"name": f"s{i}", "kind": "switch", "dpid": i + 1} for i in range(SITES)]
    links: list[dict[str, Any]] = [
        {"a": f"d{i}", "b": f"s{i}", "capacity": "10 Gb/s", "ports": {f"s{i}": port(f"s{i}")}}
        for i in range(SITES)
    ]
    links += [
        {"a": a, "b": b, "capacity": "1 Gb/s", "delay": "5 ms",
         "ports": {a: port(a), b: port(b)}}
        for a, b in ring + rungs
    ]  # fmt: skip
    return {"nodes": nodes, "links": links}


CONFIG: dict[str, Any] = {
    "topology": network(),
    "controller": {"driver": "simulated"},
    "templates": {
        "bulk": {
            "qspec": {"min_throughput": "10 Mb/s"}, "rspec": {"max_throughput": "1 Gb/s"},
            "priority": 1, "patience": "1 h", "break_even": 0, "paths": 2,
        },
        "urgent": {
            "qspec": {"min_throughput": "50 Mb/s"}, "rspec": {"max_throughput": "800 Mb/s"},
            "priority": 9, "patience": "1 h", "break_even": 0,
        },
    },
}  # fmt: skip


@contextmanager
def broker_process(
    folder: Path, config: Mapping[str, Any] = CONFIG, archive: str = ""
) -> Iterator[str]:
    """The URL of ``python -m adon.service.serve`` in a process of its own, with ``config``."""
    listen = f"127.0.0.1:{free_port()}"
    archive = archive or str(folder / "archive.sqlite")
    state = {"state": str(folder / "state.sqlite"), "archive": archive}
    file = folder / "adon.yml"
    file.write_text(json.dumps({**config, "broker": {"listen": listen, **state}}), encoding="utf-8")
    words = [sys.executable, "-m", "adon.service.serve", "--config", str(file)]
    with (folder / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as process:
        try:
            _await(BrokerClient(f"http://{listen}", PATIENT_S), process, folder / "log")
            yield f"http://{listen}"
        finally:
            process.terminate()
            code = process.wait(PATIENT_S)
    assert code == 0, (folder / "log").read_text()
    assert "Traceback" not in (folder / "log").read_text()


def _await(client: BrokerClient, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENT_S
    while True:
        try:
            client.health()
            return
        except BrokerError as error:
            if error.code == "unauthorized":
                return  # it answers those whom it knows
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, "the broker does not answer"
            time.sleep(0.1)


@dataclass
class Told:
    """What clients were told: the last answer for each id, and how long each kind of call took."""

    accepted: dict[str, Transit] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: Told) -> None:
        """Take in what another client was told."""
        self.accepted |= other.accepted
        self.refused += other.refused
        for kind, values in other.seconds.items():
            self.seconds[kind] += values


class Client:
    """One client with transits of its own, doing anything at random."""

    def __init__(self, url: str, number: int, seed: int) -> None:
        self._broker = BrokerClient(url, PATIENT_S)
        self._number = number
        self._random = Random(seed * 1000 + number)
        self._requests: dict[str, TransitRequest] = {}
        self.told = Told()

    def run(self, steps: int) -> Told:
        """Take so many steps."""
        for _ in range(steps):
            self._step()
        return self.told

    def _step(self) -> None:
        live = [i for i, t in self.told.accepted.items() if t.state not in ENDED]
        kind = self._random.choices(
            ("request", "again", "renew", "release", "flows", "get"), (5, 1, 2, 4, 1, 1)
        )[0]
        if kind in ("again", "request") or not live:
            known = list(self.told.accepted)
            again = kind == "again" and known
            self._call("request", self._again(known) if again else self._new())
            return
        name = self._random.choice(live)
        if kind == "renew":
            self._call("renew", name, LEASE_S + self._random.random())
        elif kind == "release":
            self._call("release", name, self._random.randrange(10**9), 1.0, "success")
        elif kind == "flows":
            self._call("report_flows", name, [self._flow()])
        else:
            self._call("get", name)

    def _new(self) -> TransitRequest:
        src, dst = self._random.sample(range(SITES), 2)
        now = time.time()
        start = now + self._random.uniform(1, 600) if self._random.random() < 0.2 else None
        # None ends while a machine that is busy is still at it.
        lasts = self._random.uniform(1800, 2700)
        end = (start or now) + lasts if self._random.random() < 0.2 else None
        least = self._random.choice([None, 5e6, 40e6, 120e6, 400e6])
        request = TransitRequest(
            id=f"{self._number}.{len(self._requests)}",
            src=f"d{src}",
            dst=f"d{dst}",
            size_bytes=self._random.choice([None, 10**9, 10**12]),
            min_bps=least,
            template=self._random.choice(["bulk", "urgent"]),
            lease_s=LEASE_S,
            start=start,
            end=end,
            user=f"user{self._number % 4}",
            flows=(self._flow(),),
        )
        self._requests[request.id] = request
        return request

    def _flow(self) -> Flow:
        # Few are shared: those of one port between two sites have to take one way.
        port = 20_000 + 100 * self._number + self._random.randrange(100)
        return Flow("tcp", None, (port, port))

    def _again(self, known: list[str]) -> TransitRequest:
        return self._requests[self._random.choice(known)]

    def _call(self, method: str, *args: Any) -> None:
        started = time.perf_counter()
        try:
            answer: Transit = getattr(self._broker, method)(*args)
        except BrokerError as error:
            assert error.code in REFUSALS, error
            self.told.refused[error.code] += 1
            return
        finally:
            self.told.seconds[method].append(time.perf_counter() - started)
        self.told.accepted[answer.id] = answer


class Watcher:
    """Looks again and again, while clients ask, whether any link is promised beyond what it has."""

    def __init__(self, url: str) -> None:
        self._broker = BrokerClient(url, PATIENT_S)
        self._capacity = {
            (load["from"], load["to"]): link["capacity_bps"]
            for link in self._broker.topology()["links"]
            for load in link["load"]
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._trouble: BaseException | None = None
        self.looks = 0
        self.fullest = 0.0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.observe()
        except BaseException as trouble:  # raised again where the test waits
            self._trouble = trouble

    def observe(self) -> None:
        """One look: at what transits have, and at what the broker says of its links."""
        self._judge([t for t in self._broker.list() if t.state in LIVE])
        for link in self._broker.topology()["links"]:
            for load in link["load"]:
                hop = load["from"], load["to"]
                assert load["reserved_bps"] <= load["reservable_bps"] <= self._capacity[hop], load
                assert load["granted_bps"] <= self._capacity[hop] + 1, load
        self.looks += 1

    def _judge(self, live: list[Transit]) -> None:
        for at in {max(t.request.start, 0.0) for t in live}:
            sums: dict[tuple[str, str], float] = defaultdict(float)
            for t in live:
                if t.request.start <= at < (t.request.end or t.grant.lease_until):
                    for hop, bps in _minima(t):
                        sums[hop] += bps
            for hop, bps in sums.items():
                assert bps <= self._capacity[hop], (hop, bps, at)
                self.fullest = max(self.fullest, bps / self._capacity[hop])


def _minima(transit: Transit) -> Iterator[tuple[tuple[str, str], float]]:
    parts = [(part.path, part.min_bps) for part in transit.grant.parts]
    for path, min_bps in parts or [(transit.grant.path, transit.request.min_bps)]:
        for hop in pairwise(path):
            yield hop, min_bps


def run_clients(url: str, clients: int, steps: int, seed: int) -> Told:
    """All clients at once, each in a thread of its own; what they were told together."""
    results = Told()
    with ThreadPoolExecutor(clients) as pool:
        workers = [Client(url, number, seed) for number in range(clients)]
        for result in pool.map(lambda client: client.run(steps), workers):
            results.add(result)
    return results


def quantile(values: list[float], part: float) -> float:
    """The value below which ``part`` of all are."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]
