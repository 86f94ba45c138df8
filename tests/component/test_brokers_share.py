"""Two broker processes on one PostgreSQL: one leads, whichever is asked and whichever dies.

Real everything but the switches: two ``adon.service.serve`` processes, HTTP, a PostgreSQL server.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from broker_rig import Rig, code_of
from killed_broker import SteppedStore
from postgres_world import new_place, patient_stores, server_in, stores_at
from two_brokers import TwoBrokers, commits, oversubscribed, watch
from waiting import until

from adon.cli import doctor
from examples.testbed.postgres import Postgres
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import LIVE, Transit, TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.stores.postgres import PostgresStore
from network_provisioner.stores.store import Store

pytestmark = pytest.mark.component

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "adon.yml"
_THREADS, _ROUNDS = 12, 25
_IMPATIENT_S = 3.0  # who asks again elsewhere does not wait for a broker that stands still
_READY_S = 300.0  # nothing here takes nearly as long
_AGAIN_S = 300.0  # a client goes on asking for so long
_AGAIN = ("unreachable", "store_unavailable", "busy")
T = TypeVar("T")
SITES = ("mu", "local", "tacc", "iplant")


class Brokers(TwoBrokers):
    """With a template for who waits, and what each direction of a link carries."""

    def __init__(self, folder: Path, url: str) -> None:
        patient = {"qspec": {"min_throughput": "100 Mb/s"}, "patience": "1 h"}
        super().__init__(folder, url, {"patient": patient})
        self.capacities: dict[tuple[str, str], float] = {}
        units = {"Gb/s": 1e9, "Mb/s": 1e6}
        for link in self.config["topology"]["links"]:
            amount, unit = link["capacity"].split()
            for hop in ((link["a"], link["b"]), (link["b"], link["a"])):
                self.capacities[hop] = float(amount) * units[unit]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with server_in(tmp_path_factory.mktemp("pg")) as running:
        yield running


@pytest.fixture
def brokers(tmp_path: Path, server: Postgres) -> Iterator[Brokers]:
    url = new_place(server)
    PostgresStore(url).close()  # which makes the tables
    watch(url)
    both = Brokers(tmp_path, url)
    try:
        both.start(0, 1)
        yield both
    finally:
        both.stop()


def again(call: Callable[[], T]) -> T:
    """What a broker answers, asked again while nobody leads."""
    deadline = time.monotonic() + _AGAIN_S
    while True:
        try:
            return call()
        except BrokerError as error:
            if error.code not in _AGAIN or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def installed(client: BrokerClient, name: str) -> Transit:
    """The transit once it is: what a leader left undone, the next one does."""

    def look() -> Transit | None:
        transit = again(lambda: client.get(name))
        return transit if transit.state is TransitState.INSTALLED else None

    return cast(Transit, until(look, f"{name} is installed"))


def test_one_broker_decides_whichever_is_asked(brokers: Brokers) -> None:
    client0, client1 = brokers.client(0), brokers.client(1)
    a = TransitRequest("a", "mu", "tacc", min_bps=150e6, lease_s=600)
    b = TransitRequest("b", "local", "iplant", lease_s=600, template="patient")
    again(lambda: client0.request(a))
    first = installed(client0, "a")
    assert first.grant.layer == "l2"
    second = again(lambda: client1.request(b))
    assert second.state is TransitState.QUEUED and "s1" in second.reason
    same = again(lambda: client1.request(a))
    assert (same.grant.path, same.state, same.grant.lease_until) == (
        first.grant.path, first.state, first.grant.lease_until,
    )  # fmt: skip
    assert client0.topology()["links"] == client1.topology()["links"]
    again(lambda: client1.release("a", 10**9, 1.0))
    installed(client0, "b")
    checks = {c.what: c for c in doctor.findings(brokers.folder / "0.yml")}
    check = checks["the broker that leads on the database"]
    assert check.ok and check.found == f"{client0.health()['leader']} answers"
    for client in (client0, client1):  # each answers what the database says
        assert client.get("a").state is TransitState.RELEASED
        assert [t.id for t in client.list()] == ["a", "b"]
        assert client.template("patient")["name"] == "patient"
        with pytest.raises(BrokerError) as unknown:
            client.release("nobody")
        assert unknown.value.code == "unknown_transit"


@pytest.mark.parametrize("trouble", ["kill", "freeze"])
def test_another_takes_over_with_everything(brokers: Brokers, trouble: str) -> None:
    old = brokers.leader()
    client = brokers.client(1 - old)
    runs = TransitRequest("runs", "mu", "tacc", min_bps=150e6, lease_s=600)
    assert again(lambda: client.request(runs)).state is TransitState.INSTALLED
    waits = TransitRequest("waits", "local", "iplant", lease_s=600, template="patient")
    assert again(lambda: client.request(waits)).state is TransitState.QUEUED
    getattr(brokers, trouble)(old)
    later = TransitRequest("later", "iplant", "local", min_bps=1e6, lease_s=600)
    assert again(lambda: client.request(later)).state is TransitState.INSTALLED
    assert client.get("runs").state is TransitState.INSTALLED
    again(lambda: client.release("runs"))
    installed(client, "waits")
    if trouble == "freeze":  # it finds that another leads, and follows
        brokers.thaw(old)
    else:
        brokers.start(old)
    assert brokers.leader() == 1 - old
    back = brokers.client(old)
    assert again(lambda: back.release("later")).state is TransitState.RELEASED
    assert oversubscribed(brokers.url, brokers.capacities) == []


@pytest.mark.parametrize(
    "terms", [{}, {"size_bytes": 1000}, {"best_effort": "nobody knows its files"}]
)
def test_a_request_that_is_answered_is_in_the_database(
    tmp_path: Path, server: Postgres, terms: dict[str, Any]
) -> None:
    """The server dies when the request is about to be stored."""
    fatal = [""]

    def step(name: str) -> None:
        if name == fatal[0]:
            server.kill()

    with patient_stores(), stores_at(new_place(server)) as opened:
        store = opened()
        rig = Rig(tmp_path / "unused", store=cast(Store, SteppedStore(store, step)))
        fatal[0] = "about to be stored"
        try:
            assert code_of(rig.ask, "t", "mu", "tacc", **terms) == "store_unavailable"
        finally:
            fatal[0] = ""
            server.start()
        assert store.get("t") is None
        state = rig.ask("t", "mu", "tacc", **terms).state
        following = Rig(tmp_path / "unused", store=cast(Store, opened()))
        assert following.ask("t", "mu", "tacc", **terms).state is state


class Crowd:
    """Clients of both brokers: they ask, keep some, give back some, wherever they like."""

    def __init__(self, brokers: Brokers, threads: int, rounds: int) -> None:
        self.brokers, self.rounds = brokers, rounds
        self.accepted: dict[str, Transit] = {}
        self.released: set[str] = set()
        self.refused: list[BrokerError] = []
        self.answers = 0
        self.lock = threading.Condition()
        self.threads = [
            threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)
        ]

    def _run(self, number: int) -> None:
        dice = random.Random(number)
        kept: list[str] = []
        for turn in range(self.rounds):
            transit_id = f"t{number}.{turn}"
            src, dst = dice.sample(SITES, 2)
            request = TransitRequest(
                transit_id, src, dst, min_bps=dice.choice([1e6, 5e6, 20e6, 60e6, 150e6]),
                lease_s=dice.choice([1.0, 300.0, 300.0]), priority=None,
            )  # fmt: skip
            answer = self._ask(dice, lambda client, r=request: client.request(r))
            if answer is not None:
                with self.lock:
                    self.accepted[transit_id] = answer
                kept.append(transit_id)
            while len(kept) > 3:
                self.release(dice, kept.pop(dice.randrange(len(kept))))

    def release(self, dice: random.Random, transit_id: str) -> None:
        if self._ask(dice, lambda client: client.release(transit_id, 1000, 1.0)) is not None:
            with self.lock:
                self.released.add(transit_id)

    def _ask(self, dice, call):  # type: ignore[no-untyped-def]
        """Ask one broker; where it does not answer, both in turn, as a client with two would."""
        attempt, deadline = dice.randrange(2), time.monotonic() + _AGAIN_S
        while time.monotonic() < deadline:
            attempt += 1
            try:
                answer = call(self.brokers.client(attempt % 2, _IMPATIENT_S))
            except BrokerError as error:
                if error.code not in _AGAIN:
                    raise
                with self.lock:
                    self.refused.append(error)
                time.sleep(0.02 * dice.random())
            else:
                with self.lock:
                    self.answers += 1
                    self.lock.notify_all()
                return answer
        return None

    def wait_for(self, answers: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: self.answers >= answers, timeout=_AGAIN_S)


def _killed(brokers: Brokers, crowd: Crowd, server: Postgres) -> None:
    for number, answers in ((0, 60), (1, 150), (0, 250)):
        crowd.wait_for(answers)
        brokers.kill(number)
        brokers.start(number)
        decides(brokers.client(number), f"after-{answers}")


def decides(client: BrokerClient, name: str) -> None:
    """Have a broker decide something, however little the crowd leaves to it."""
    again(lambda: client.request(TransitRequest(name, "mu", "tacc", min_bps=1e6, lease_s=600)))
    again(lambda: client.release(name))


def _frozen(brokers: Brokers, crowd: Crowd, server: Postgres) -> None:
    for number, answers in ((0, 60), (1, 110), (0, 160), (1, 210)):
        crowd.wait_for(answers)
        brokers.freeze(number)
        crowd.wait_for(answers + 30)  # the other goes on
        brokers.thaw(number)


def _without_database(brokers: Brokers, crowd: Crowd, server: Postgres) -> None:
    for answers in (60, 150, 250):
        crowd.wait_for(answers)
        server.kill()
        server.start()


@pytest.mark.long
@pytest.mark.parametrize("trouble", [_killed, _frozen, _without_database])
def test_two_brokers_under_load_and_trouble(
    brokers: Brokers, server: Postgres, trouble: Callable[[Brokers, Crowd, Postgres], None]
) -> None:
    crowd = Crowd(brokers, threads=_THREADS, rounds=_ROUNDS)
    for thread in crowd.threads:
        thread.start()
    trouble(brokers, crowd, server)
    for thread in crowd.threads:
        thread.join()
    assert len(crowd.accepted) == _THREADS * _ROUNDS
    installed = [t for t in crowd.accepted.values() if t.state is TransitState.INSTALLED]
    assert 10 < len(installed) < _THREADS * _ROUNDS - 10  # there was much, and there was too much

    assert oversubscribed(brokers.url, brokers.capacities) == []
    store = PostgresStore(brokers.url)
    for transit_id in crowd.accepted:
        transit = store.get(transit_id)
        assert transit is not None, f"{transit_id} was accepted and is lost"
        if transit_id in crowd.released:
            assert transit.state not in LIVE | {TransitState.QUEUED}, transit
    client0, client1 = brokers.client(0), brokers.client(1)
    dice = random.Random(0)
    for transit_id in set(crowd.accepted) - crowd.released:
        crowd.release(dice, transit_id)
    assert store.active() == []
    for client in (client0, client1):
        loads = [load for link in client.topology()["links"] for load in link["load"]]
        assert [load for load in loads if load["reserved_bps"]] == []
        health = client.health()
        assert health["live"] == health["queued"] == 0
    most = TransitRequest("whole", "mu", "tacc", min_bps=170e6, lease_s=600)
    whole = again(lambda: client0.request(most))
    assert whole.state is TransitState.INSTALLED
    assert oversubscribed(brokers.url, brokers.capacities) == []
    terms = {commit.term for commit in commits(brokers.url)}
    assert trouble is _without_database or len(terms) > 1
    store.close()
