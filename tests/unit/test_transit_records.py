"""How transits are stored and published, byte for byte, as a broker made them of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from broker_rig import Rig, demo_network, fill
from relay_world import RelayRig
from test_io_aware import TEMPLATES as DISK_TEMPLATES
from test_io_aware import World

from adon.cli.transit import explanation
from network_provisioner.api import answers
from network_provisioner.api.app import description
from network_provisioner.base.flows import Flow
from network_provisioner.base.model import Transit, TransitRequest
from network_provisioner.stores.store import row_of, transit_of

KEPT = json.loads(Path(__file__).with_name("transit_records.json").read_text("ascii"))
"""By name: the row that was stored, and what ``adon transit explain`` said."""
OWNER = {"user": "ann", "project": "soykb", "experiment": "e1", "workflow": "wf", "job": "j1"}


def _of_circuits(folder: Path) -> Iterator[Transit]:
    """Ports, hosts, changed rates, reports, tuning, reservations in advance, and the queue."""
    rig = Rig(folder / "circuits", matches=True)
    port = (Flow(dst_ports=(5000, 5010)), Flow("udp", src_ports=(7, 7)))
    rig.ask("flows", "mu", "tacc", flows=port, max_bps=50e6, retry=2, priority=3, **OWNER)
    rig.broker.change("flows", min_bps=7e6, max_bps=40e6)
    ends = [rig.topology.site(name).hosts[0].address for name in ("local", "iplant")]
    host = {"src_host": ends[0], "dst_host": ends[1], "ports_at": "src"}
    rig.broker.ask([TransitRequest("hosts", "local", "iplant", 10**10, **host)])
    rig.broker.ask([TransitRequest("gone", "mu", "tacc", 10**10, best_effort="no need")])
    ahead = rig.clock.now + 100
    rig.ask("ahead", "mu", "iplant", start=ahead, end=ahead + 60, min_bps=1e6, lease_s=9.0)
    rig.controller.bytes["flows"] = 1
    rig.let_pass(2)
    rig.controller.bytes["flows"] = 5_000_000
    used = {"streams": 4, "buffer_bytes": 1 << 20, "threads": 2, "retries": 1, "files": 2}
    rig.broker.release("flows", 4_000_000, 1.5, "success", note="slow", vouched=False, **used)
    rig.ask("refused", "mu", "tacc", min_bps=1e6)
    rig.broker.release("refused", 10**15, 1.0, "failed")
    yield from rig.broker.list()


def _of_the_queue(folder: Path) -> Iterator[Transit]:
    rig = Rig(folder / "queue")
    fill(rig)
    rig.ask("waits", "local", "tacc", template="soykb", size_bytes=10**9, min_bps=100e6)
    rig.ask("without", "mu", "tacc", template="soykb", size_bytes=10**9, min_bps=100e6)
    yield from rig.broker.list()


def _of_several_paths(folder: Path) -> Iterator[Transit]:
    wide = {"wide": {"qspec": {"min_throughput": "1 Mb/s"}, "paths": 2}}
    rig = Rig(folder / "paths", demo_network(), wide, multipath=True)
    rig.ask("split", "mu", "tacc", template="wide", min_bps=190e6)
    rig.let_pass(3)
    yield from rig.broker.list()


def _of_relays(folder: Path) -> Iterator[Transit]:
    rig = RelayRig(folder / "relays")
    rig.ask("relayed", "mu", "tacc", template="always")
    rig.ask("auto", "local", "iplant", template="auto")
    yield from rig.broker.list()
    rig.broker.release("relayed", 10**8, 20.0, "success")
    yield rig.broker.get("relayed")
    unheard = RelayRig(folder / "unheard", with_agents=False)
    unheard.ask("direct", "mu", "tacc", template="always")
    yield from unheard.broker.list()


def _of_disks(folder: Path) -> Iterator[Transit]:
    world = World(folder / "disks", templates=DISK_TEMPLATES)
    world.ask("a", "mu", "tacc", template="mosaic")
    world.run(45)
    yield from world.broker.list()
    rates = {"templates": DISK_TEMPLATES, "disk_rate_of": lambda *_: 30e6}
    Rig(folder / "known", **rates).ask("known", "mu", "tacc", template="mosaic")
    yield from Rig(folder / "known", **rates).broker.list()


def made(folder: Path) -> dict[str, list[str]]:
    """As :data:`KEPT`, by the broker of today."""
    kinds: Iterable[Iterator[Transit]] = (
        make(folder)
        for make in (_of_circuits, _of_the_queue, _of_several_paths, _of_relays, _of_disks)
    )
    return {
        f"{t.id} {t.state}": [row_of(t)["body"], explanation(t)]
        for transits in kinds
        for t in transits
    }


def test_a_broker_makes_the_same_rows_and_explanations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    rows = made(tmp_path)
    assert list(rows) == list(KEPT)
    for name, expected in KEPT.items():
        assert rows[name] == expected


@pytest.mark.parametrize("name", KEPT)
def test_a_row_is_read_written_and_published_as_it_is(name: str) -> None:
    body, _ = KEPT[name]
    transit = transit_of(name.split(maxsplit=1)[0], body)
    assert isinstance(transit, Transit)
    assert row_of(transit)["body"] == row_of(transit.copy())["body"] == body
    assert bytes(answers.transit(transit).body).decode() == body


def test_the_published_description_has_the_fields_of_the_rows() -> None:
    shape = description()["components"]["schemas"]["Transit"]["properties"]
    for body, _ in KEPT.values():
        assert list(json.loads(body)) == list(shape)
