"""Figure 18 of the thesis (§5.2): t1 to t6, on the testbed's network at 0.03 of its rates.

There AL2S carries 5.5 Gb/s and Layer 3 650 Mb/s; here 180 and 18 Mb/s of L2 and L3 can be reserved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_rig import Rig

from network_provisioner.admission import Limits
from network_provisioner.model import TransitState

SCALE = 0.03
TEMPLATES: dict[str, Any] = {
    "soykb": {
        "qspec": {"min_throughput": 600e6 * SCALE},
        "rspec": {"max_throughput": 6000e6 * SCALE},
        "priority": 5,
        "patience": "1 h",
        "share": 1.0,
    },
    "neuroblastoma": {
        "qspec": {"min_throughput": 5500e6 * SCALE},
        "rspec": {"max_throughput": 5500e6 * SCALE},
        "priority": 9,
    },
}
# In the thesis all run between the same two sites, MU and OSU. Where the switches cannot tell their
# packets apart, transits of one pair share a path; then the same sequence needs a pair for each.
SAME = dict.fromkeys(("t1", "t3", "t4", "t6"), ("mu", "tacc"))
APART = {
    "t1": ("mu", "tacc"),
    "t3": ("mu", "iplant"),
    "t4": ("local", "tacc"),
    "t6": ("local", "iplant"),
}


@pytest.mark.parametrize(("pairs", "pin"), [(SAME, False), (APART, True)])
def test_figure_18(tmp_path: Path, pairs: dict[str, tuple[str, str]], pin: bool) -> None:
    rig = Rig(tmp_path / "s", templates=TEMPLATES, limits=Limits(pin_pairs=pin))

    def ask(at: str, template: str, least: float) -> Any:
        rig.clock.now += 60
        return rig.ask(at, *pairs[at], template=template, min_bps=least * SCALE, size_bytes=10**9)

    t1 = ask("t1", "soykb", 700e6)
    assert (t1.state, t1.layer) == (TransitState.INSTALLED, "l2")
    rig.broker.release("t1", 10**9, 45.0)  # t2

    t3 = ask("t3", "neuroblastoma", 5500e6)
    assert (t3.state, t3.layer) == (TransitState.INSTALLED, "l2")

    t4 = ask("t4", "soykb", 600e6)
    assert (t4.state, t4.layer) == (TransitState.INSTALLED, "l3")
    l2 = next(c for c in t4.candidates if c["layer"] == "l2")
    assert "15 Mb/s free, 18 Mb/s needed" in l2["rejected"]  # 500 Mb/s left, 600 needed

    t6 = ask("t6", "soykb", 700e6)
    assert t6.state is TransitState.QUEUED
    assert "held by t3" in t6.reason and "earliest start" in t6.reason

    rig.clock.now += 1
    rig.broker.release("t3", 10**9, 48.0)
    started = rig.broker.get("t6")
    assert (started.state, started.layer) == (TransitState.INSTALLED, "l2")
    assert started.installed_at == rig.clock.now
    assert rig.broker.get("t4").layer == "l3"
