"""A broker that waits for switches: it can be asked meanwhile, and changes wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from broker_rig import FakeController, code_of, demo_network

from network_provisioner.base.controller import ControllerError, SwitchStatus
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import TransitRequest, TransitState
from network_provisioner.broker import Broker
from network_provisioner.stores.sqlite import MEMORY, SqliteStore
from network_provisioner.templates.data import templates_from_dict


class Slow(FakeController):
    """Waits for a switch."""

    def __init__(self) -> None:
        super().__init__(demo_network())
        self.statuses = [SwitchStatus("s2", "switch s2", False, 0.0, "is not connected", {})]
        self.waits, self.came = threading.Event(), threading.Event()
        self.laid = False  # whether best effort is

    def start(self, timeout_s: float) -> None:
        self.waits.set()
        self.came.wait()
        super().start(timeout_s)
        self.statuses = []
        self.laid = True


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.came.set()


@pytest.fixture
def broker(slow: Slow) -> Broker:
    templates = templates_from_dict(None)
    return Broker(demo_network(), templates, slow, SqliteStore(MEMORY))


def test_who_is_awaited_is_told_and_changes_wait(slow: Slow, broker: Broker) -> None:
    with ThreadPoolExecutor(2) as pool:
        start = pool.submit(broker.start)
        slow.waits.wait()
        assert broker.problem() == "the broker is starting; switch s2 is not connected"
        assert broker.health()["status"] == "degraded" and broker.list() == []
        assert code_of(broker.check_started) == "busy"
        future = pool.submit(broker.request, TransitRequest("a", "mu", "tacc"))
        assert not slow.circuits
        slow.came.set()
        assert future.result().state is TransitState.INSTALLED and slow.laid
        start.result()
    assert broker.health()["status"] == "ok"
    broker.check_started()


def test_a_start_that_fails_answers_who_waits(slow: Slow, broker: Broker) -> None:
    slow.broken = ControllerError("the port is in use")
    with ThreadPoolExecutor(2) as pool:
        start = pool.submit(broker.start)
        slow.waits.wait()
        future = pool.submit(broker.request, TransitRequest("a", "mu", "tacc"))
        slow.came.set()
        with pytest.raises(ControllerError, match="the port is in use"):
            start.result()
        with pytest.raises(BrokerError, match="could not start: the port is in use; try again"):
            future.result()
