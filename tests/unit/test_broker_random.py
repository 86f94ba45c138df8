"""Random requests, releases, failures and restarts: promises that hold after every step."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from broker_rig import Clock, Rig, demo_network, refusing
from hypothesis import given, settings
from hypothesis import strategies as st

from network_provisioner.admission import Limits
from network_provisioner.errors import BrokerError
from network_provisioner.model import LIVE, TransitState

ids = st.integers(0, 19).map(str)
# Most requests leave the rates to the template, else most of them contradict themselves.
rates = st.sampled_from([*[None] * 6, 1e6, 7.3e6, 40e6, 90e6, 150e6, 400e6])
asks = st.fixed_dictionaries(
    {
        "transit_id": ids,
        "src": st.sampled_from(["mu", "tacc", "local"]),
        "dst": st.sampled_from(["tacc", "mu"]),
        "min_bps": rates,
        "max_bps": rates,
        "template": st.sampled_from(["default", "soykb"]),
        "lease_s": st.none() | st.sampled_from([3.0, 30.0]),
        "size_bytes": st.sampled_from([None, 10**9, 10**9, 10**6, 0]),
    }
)
steps = st.one_of(
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("release"), ids),
    st.tuples(st.just("renew"), ids),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 10.0, 40.0])),
    st.tuples(st.just("break"), st.none()),
    st.tuples(st.just("mend"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


def take(rig: Rig, step: str, value: Any) -> Rig:
    try:
        if step == "ask":
            rig.ask(**value)
        elif step == "release":
            rig.broker.release(value, 1000, 1.0)
        elif step == "renew":
            rig.broker.renew(value, 50.0)
        elif step == "pass":
            rig.let_pass(value)
        elif step == "break":
            rig.controller.broken = refusing()
        elif step == "mend":
            rig.controller.broken = None
        else:
            rig = Rig(rig.file, rig.topology, clock=rig.clock, limits=rig.broker.limits)
    except BrokerError as error:
        # Refused in words; what must hold is checked as after any other step.
        assert error.code in {
            "impossible_rate", "unknown_transit", "bad_request", "controller_unavailable",
        }  # fmt: skip
    return rig


def check(rig: Rig) -> None:
    found = rig.broker.list()
    live = [t for t in found if t.state in LIVE]
    sums: dict[str, float] = {}
    for transit in live:
        assert transit.state is TransitState.INSTALLED
        assert transit.requested_bps <= transit.granted_bps <= transit.max_bps
        assert (transit.path[0], transit.path[-1]) == (transit.src, transit.dst)
        assert transit.lease_until > rig.clock.now
        for a, b in pairwise(transit.path):
            sums[f"{a}>{b}"] = sums.get(f"{a}>{b}", 0) + transit.granted_bps
    reserved = rig.reserved()
    assert reserved.keys() == sums.keys()
    for hop, bps in reserved.items():
        # The ledger rounds each reservation up to whole bits per second.
        assert sums[hop] <= bps <= sums[hop] + len(live)
        assert bps <= 0.9 * rig.topology.link(*hop.split(">")).capacity_bps
    assert all(t.reason for t in found)
    health = rig.broker.health()
    assert health["live"] == len(live)
    assert health["queued"] == sum(t.state is TransitState.QUEUED for t in found)
    if health["status"] == "ok" and not rig.controller.broken:
        assert rig.controller.installed() == sorted(t.id for t in live)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=5, max_size=40), st.booleans())
def test_promises_hold_after_every_step(todo: list[tuple[str, Any]], pin: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # L3 almost as large as L2, so that both are used.
        network = demo_network(l3="150 Mb/s")
        rig = Rig(Path(folder) / "s", network, clock=Clock(), limits=Limits(pin_pairs=pin))
        seen: set[str] = set()
        for step, value in todo:
            rig = take(rig, step, value)
            check(rig)
            now = {t.id for t in rig.broker.list()}
            assert seen <= now  # nothing accepted is lost
            seen = now
        rig.controller.broken = None
        rig.let_pass(10)
        for transit in rig.broker.list():
            rig.broker.release(transit.id)
        check(rig)
        assert rig.reserved() == {} and rig.controller.installed() == []
        assert rig.broker.health() | {"controller": 0} == {
            "status": "ok", "problem": "", "controller": 0, "live": 0, "queued": 0,
        }  # fmt: skip
