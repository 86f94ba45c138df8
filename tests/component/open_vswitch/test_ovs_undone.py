"""What somebody does to the rules and devices of real switches is undone, with one broker for
all."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from ovs_rig import L2, L3, MBPS, transfer
from test_ovs_repairs import Served

from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import IN_SWITCHES
from examples.testbed.network import Network
from network_provisioner.base.controller import Part

pytestmark = [pytest.mark.component, pytest.mark.root]


@pytest.fixture(scope="module")
def rig(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With the transit ``a``."""
    made = Served(network, tmp_path_factory.mktemp("broker") / "state.sqlite")
    try:
        assert tuple(made.ask("a").grant.path) == L2
        yield made
    finally:
        made.openflow.clear()
        made.broker.stop()


def repairs_of(rig: Served, switch: str) -> Callable[[], Counter[str]]:
    """What tells how much was repaired from now on, by kind."""
    before = Counter(rig.status(switch).repairs)
    return lambda: Counter(rig.status(switch).repairs) - before


@pytest.mark.parametrize("switch, which", [("s2", ["ip"]), ("s1", [])], ids=["ip", "all"])
def test_deleted_rules_come_back_and_fail_nothing(
    rig: Served, switch: str, which: list[str]
) -> None:
    repaired, before = repairs_of(rig, switch), rig.ours(switch)
    rig.network.switches.ofctl(switch, "del-flows", *which)
    rig.wait_for("the rules", lambda: rig.ours(switch) == before)
    rig.wait_for("the count", lambda: bool(repaired()["rules"]))
    links = rig.openflow._links
    rig.wait_for("probes again", lambda: len(links.heard) == len(links.segments))
    rig.broker.sweep()
    assert tuple(rig.broker.get("a").grant.path) == L2 and rig.broker.get("a").grant.moves == 0
    assert transfer("mu", "tacc", 0.5)["bytes"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ["qdisc", "del", "dev", "{device}", "root"],
        ["class", "change", "dev", "{device}", "classid", "7ad0:2", "htb", "rate", "1kbit"],
        ["filter", "del", "dev", "{device}", "parent", "7ad0:"],
    ],
    ids=lambda words: words[0],
)
def test_what_somebody_does_to_a_device_is_undone(rig: Served, words: list[str]) -> None:
    device = LAYOUT.device(LAYOUT.link("l2"), "s1")

    def seen() -> tuple[object, list[str]]:
        return rig.classes(device), rig.tc("filter", device)

    repaired, before = repairs_of(rig, "s1"), seen()
    subprocess.run([*IN_SWITCHES, "tc", *(w.format(device=device) for w in words)], check=True)
    rig.wait_for("all as before", lambda: seen() == before)
    rig.wait_for("the count", lambda: bool(repaired()["devices' classes"]))


@pytest.mark.parametrize(
    "words",
    [
        ["mod-flows", "ip,nw_dst=10.10.0.2,actions=drop"],
        [
            "add-flow",
            "cookie=0x7,priority=200,in_port=1,ip,nw_src=10.10.0.1,nw_dst=10.10.0.2,actions=drop",
        ],
        ["mod-group", "group_id={group},type=select,bucket=weight:1,actions=output:10"],
        ["del-groups"],
    ],
    ids=lambda words: words[0],
)
def test_what_no_switch_tells_of_comes_back(rig: Served, words: list[str]) -> None:
    split = {"l2": (L2, 5 * MBPS, 9 * MBPS), "l3": (L3, 5 * MBPS, 9 * MBPS)}
    parts = tuple(Part(*part) for part in split.values())
    rig.openflow.apply([rig.circuit(parts=parts, min_bps=10 * MBPS, max_bps=18 * MBPS)])

    def seen() -> tuple[set[str], str]:
        return rig.ours("s1"), rig.network.switches.ofctl("s1", "dump-groups").partition("\n")[2]

    repaired, before = repairs_of(rig, "s1"), seen()
    group = before[1].partition("group_id=")[2].partition(",")[0]
    command, *more = words
    rig.network.switches.ofctl("s1", command, *(word.format(group=group) for word in more))
    rig.wait_for("all as before", lambda: seen() == before)
    rig.wait_for("the count", lambda: bool(repaired()))
