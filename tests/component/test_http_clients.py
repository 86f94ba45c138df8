"""Many clients at once against a broker in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from http_load import PATIENT_S, Watcher, broker_process, run_clients

from network_provisioner.base.model import ENDED, TransitState
from network_provisioner.client.broker import BrokerClient

pytestmark = pytest.mark.component


@pytest.mark.parametrize(
    ("clients", "steps"), [(12, 20), pytest.param(64, 25, marks=pytest.mark.long)]
)
def test_clients_oversubscribe_nothing_lose_nothing_and_leave_nothing(
    tmp_path: Path, clients: int, steps: int
) -> None:
    with broker_process(tmp_path) as url:
        with Watcher(url) as watcher:
            results = run_clients(url, clients, steps, seed=1)
        watcher.observe()
        broker = BrokerClient(url, PATIENT_S)

        transits = {t.id: t for t in broker.list()}
        assert transits.keys() == results.accepted.keys()
        for name, last in results.accepted.items():
            if last.state in ENDED:  # what has ended stays so
                assert transits[name].state == last.state
            elif last.state is TransitState.QUEUED and transits[name].state in ENDED:
                # Its packets go another way since another transit has the same.
                assert transits[name].state is TransitState.BEST_EFFORT
                assert transits[name].reason.startswith("other transits of its packets")
            else:  # nobody but its client ends it: leases are longer than the run
                assert transits[name].state not in ENDED, transits[name].reason

        for name in results.accepted:
            broker.release(name)
        assert all(t.state in ENDED for t in broker.list())
        loads = [load for link in broker.topology()["links"] for load in link["load"]]
        assert not any(load["reserved_bps"] or load["transits"] for load in loads)
        assert broker.counters()["installed"] == []
        assert broker.health()["live"] == broker.health()["queued"] == 0

    # The test is one only where there was something to fight for.
    states = {str(t.state) for t in results.accepted.values()}
    assert {"installed", "queued"} <= states | {str(t.state) for t in transits.values()}
    assert watcher.fullest > 0.5
