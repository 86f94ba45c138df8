"""64 clients at once against a broker in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from http_load import PATIENT_S, Watcher, broker_process, quantile, run_clients

from network_provisioner.client import BrokerClient
from network_provisioner.model import ENDED, TransitState

pytestmark = [pytest.mark.component, pytest.mark.alone]
CLIENTS, STEPS = 64, 25


def test_64_clients_oversubscribe_nothing_lose_nothing_and_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker_process(tmp_path) as url:
        with Watcher(url) as watcher:
            told = run_clients(url, CLIENTS, STEPS, seed=1)
        watcher.look()
        broker = BrokerClient(url, PATIENT_S)

        found = {t.id: t for t in broker.list()}
        assert found.keys() == told.accepted.keys()
        for name, last in told.accepted.items():
            if last.state in ENDED:  # what has ended stays so
                assert found[name].state == last.state
            elif last.state is TransitState.QUEUED and found[name].state in ENDED:
                # Its packets go another way since another transit has the same.
                assert found[name].state is TransitState.BEST_EFFORT
                assert found[name].reason.startswith("other transits of its packets")
            else:  # nobody but its client ends it: leases are longer than the run
                assert found[name].state not in ENDED, found[name].reason

        for name in told.accepted:
            broker.release(name)
        assert all(t.state in ENDED for t in broker.list())
        loads = [load for link in broker.topology()["links"] for load in link["load"]]
        assert not any(load["reserved_bps"] or load["transits"] for load in loads)
        assert broker.counters()["installed"] == []
        assert broker.health()["live"] == broker.health()["queued"] == 0

    # The test is one only where there was something to fight for.
    states = {str(t.state) for t in told.accepted.values()}
    assert {"installed", "queued"} <= states | {str(t.state) for t in found.values()}
    assert watcher.fullest > 0.5
    with capsys.disabled():
        print(f"\n{CLIENTS} clients, {len(found)} transits, {watcher.looks} looks, fullest link "
              f"{watcher.fullest:.0%}, refused {dict(told.refused)}")  # fmt: skip
        for kind, seconds in sorted(told.seconds.items()):
            print(
                f"  {kind:13} {len(seconds):5} calls, p50 {1e3 * quantile(seconds, 0.5):6.1f} ms, "
                f"p99 {1e3 * quantile(seconds, 0.99):6.1f} ms"
            )
