"""The network as a controller sees it, beside the one that was said; and the frames it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_rig import application, serving
from broker_rig import FakeController, Rig
from cli_world import adon, refusal
from hypothesis import given
from hypothesis import strategies as st
from topology_world import demo

from network_provisioner.base.controller import ControllerError
from network_provisioner.controllers import frames
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.discovery import (
    Discovered,
    Port,
    as_dict,
    differences,
    section_of,
)
from network_provisioner.topology.graph import Link

TOPOLOGY = topology_from_dict(demo())
S1 = {1: Port("s1-mu", True, 1e9), 10: Port("s1-a", True)}
S2 = {2: Port("s2-tacc", True, 1e9), 10: Port("s2-a", True)}
JOINED = ((1, 10), (2, 10))
FOUND = Discovered({1: S1, 2: S2}, frozenset({JOINED}))


def test_as_it_was_said() -> None:
    assert differences(TOPOLOGY, FOUND) == []


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (
            replace(FOUND, ports={1: S1}, links=frozenset()),
            ["switch s2 (dpid 0x2) was not found"],
        ),
        (
            replace(FOUND, ports={**FOUND.ports, 7: {}}),
            ["a switch with dpid 0x7 was found, and the topology has none"],
        ),
        (
            replace(FOUND, ports={1: S1, 2: {10: S2[10]}}),
            ["link tacc-s2: s2 port 2 is not there"],
        ),
        (
            replace(FOUND, ports={1: S1 | {1: Port("s1-mu", False)}, 2: S2}),
            ["link mu-s1: s1 port 1 is down"],
        ),
        (
            replace(FOUND, ports={1: S1 | {1: Port("s1-mu", True, 1e8)}, 2: S2}),
            ["link mu-s1: s1 port 1 has 100 Mb/s, and the link 1 Gb/s"],
        ),
        (
            replace(FOUND, ports={1: S1 | {10: Port("eth7", True)}, 2: S2}),
            ["link s1-s2: s1 port 10 is eth7, and the topology says s1-a"],
        ),
        (
            replace(FOUND, links=frozenset()),
            ["link s1-s2: nothing came through from port to port"],
        ),
        (
            replace(FOUND, links=frozenset({JOINED, ((1, 11), (9, 3))})),
            ["s1 port 11 and dpid 0x9 port 3 are joined, and the topology has no such link"],
        ),
    ],
)
def test_what_is_not_as_it_was_said(network: Discovered, expected: list[str]) -> None:
    assert differences(TOPOLOGY, network) == expected


NUMBER = b"\x01\x02\x03\x04\x05\x06"


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_a_frame_says_where_it_was_sent_out(dpid: int, port: int) -> None:
    data = frames.lldp(dpid, port, NUMBER)
    assert frames.sender(data, NUMBER) == (dpid, port)
    assert frames.sender(data + bytes(40), NUMBER) == (dpid, port)  # switches may pad it
    assert frames.sender(data, b"others") is None


@given(st.binary(max_size=80), st.integers(0, 80))
def test_frames_that_are_none(tail: bytes, cut: int) -> None:
    data = frames.lldp(1, 2, NUMBER)
    for frame in (tail, data[:14] + tail, data[:cut] + tail):
        origin = frames.sender(frame, NUMBER)
        assert origin is None or (isinstance(origin[0], int) and isinstance(origin[1], int))


# -- asked for -----------------------------------------------------------------------------------


class Looking(FakeController):
    """A controller that finds what it is told."""

    found: Discovered | ControllerError = FOUND

    def discover(self) -> Discovered:
        if isinstance(self.found, ControllerError):
            raise self.found
        return self.found


@contextmanager
def broker_with(
    controller: FakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A broker on loopback whose address is in ADON_BROKER."""
    rig = Rig(tmp_path / "s.sqlite", TOPOLOGY, controller=controller)
    with serving(application(rig)) as port:
        monkeypatch.setenv("ADON_BROKER", f"http://127.0.0.1:{port}")
        yield


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = Looking(TOPOLOGY)
    with broker_with(looking, tmp_path, monkeypatch):
        ran = adon("topology", "show", "--discovered")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == ("the network is as described: switches 2, links between them 1\n")
        ran = adon("topology", "export", "--discovered", "--format", "yaml")
        assert ran.code == 0
        begun = topology_from_dict(yaml.safe_load(ran.out)["topology"])
        assert [(n.name, n.dpid) for n in begun.nodes.values()] == [("s1", 1), ("s2", 2)]
        assert begun.links == [Link("s1", "s2", 1e9, layer="l2", ports={"s1": 10, "s2": 10})]
        assert ran.err == "adon: link s1-s2: no port reports its speed, 1 Gb/s assumed\n"
        looking.found = replace(FOUND, links=frozenset())
        ran = adon("topology", "show", "--discovered")
        assert (ran.code, ran.out) == (1, "link s1-s2: nothing came through from port to port\n")
        answer = json.loads(adon("topology", "show", "--discovered", "--json").out)
        assert answer["switches"][0]["ports"][0]["name"] == "s1-mu"
        looking.found = ControllerError("switch s1 (dpid 0x1): it is not connected")
        assert refusal("topology", "show", "--discovered") == str(looking.found)


PORTS = {
    d: {n: Port(f"p{n}", True, 1e9) for n in (1, 2, 3)} | {4: Port("", True, -5)}
    for d in (11, 12, 13)
}


@pytest.mark.parametrize(
    ("links", "left", "words"),
    [
        ([((11, 1), (12, 1)), ((12, 2), (12, 3))], 1,
         "switch-c port 2 and switch-c port 3 are joined, left out: both are of one switch"),
        ([((12, 2), (12, 2))], 0, "both are of one switch"),
        ([((11, 1), (12, 1)), ((11, 1), (13, 1)), ((12, 1), (13, 1)), ((12, 2), (13, 2))], 1,
         "switch-b port 1 and switch-c port 1 are joined, left out: switch-b port 1 reaches several"
         " ports, as by a hub"),
        ([((11, 1), (12, 1)), ((11, 2), (16, 1))], 1, "left out: no switch with dpid 0x10 was"),
        ([((11, 1), (12, 7))], 1, ""),
        ([((11, 1), (12, 1)), ((11, 2), (12, 2))], 2, ""),
        ([((11, 4), (12, 4))], 1, "no port reports its speed"),
    ],
)  # fmt: skip
def test_what_is_sound_is_written_and_the_rest_is_named(
    links: list[Any], left: int, words: str
) -> None:
    nothing = topology_from_dict({"nodes": [], "links": []})
    section, said = section_of(as_dict(Discovered(PORTS, frozenset(links)), nothing))
    topology_from_dict(section)
    assert len(section["links"]) == left
    assert [node["dpid"] for node in section["nodes"]] == [11, 12, 13]
    assert words in "\n".join(said) and bool(said) == bool(words)


def test_a_new_switch_has_a_name_of_its_own() -> None:
    known = topology_from_dict(
        {"nodes": [{"name": "switch-c", "kind": "switch", "dpid": 11}], "links": []}
    )
    section, _ = section_of(as_dict(Discovered(PORTS, frozenset()), known))
    assert [switch.dpid for switch in topology_from_dict(section).nodes.values()] == [11, 12, 13]


def test_a_controller_that_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker_with(FakeController(TOPOLOGY), tmp_path, monkeypatch):
        said = refusal("topology", "show", "--discovered")
        assert "controller cannot discover links, expected openflow or opendaylight" in said
