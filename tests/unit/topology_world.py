"""Networks as Hypothesis draws them: connected or not, with everything a file can say."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from network_provisioner.topology.graph import LAYERS, Host, Link, Node, Topology

names = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF).filter(str.isprintable),
    min_size=1,
    max_size=6,
) | st.sampled_from(["mu", "s1", "a&b", "<x>", '"', "ü", "]]>", "1"])


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any valid network."""
    node_names = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    pairs = [(a, b) for n, a in enumerate(node_names) for b in node_names[:n]]
    joined = draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []
    links = [_link(draw, a, b, number) for number, (a, b) in enumerate(joined)]
    nodes = [_node(draw, n, name, joined) for n, name in enumerate(node_names)]
    switches = [node.name for node in nodes if node.kind == "switch"]
    if switches and "relay" not in node_names and draw(st.booleans()):
        nodes.append(Node("relay", "relay", "10.0.1.1", "02:00:00:00:01:01"))
        links.append(Link("relay", draw(st.sampled_from(switches)), 1e9))
    return Topology(nodes, links)


def _node(draw: st.DrawFn, number: int, name: str, joined: list[tuple[str, str]]) -> Node:
    kind = draw(st.sampled_from(["site", "switch", "router"]))
    mac = f"02:00:00:00:00:{number:02x}"
    if kind == "site":
        worker = Host(f"10.2.0.{number + 1}", mac, "worker")
        place = draw(st.none() | st.floats(-1e6, 1e6))
        return Node(
            name,
            kind,
            draw(st.sampled_from(["", f"10.0.0.{number + 1}"])),
            draw(st.sampled_from(["", mac])),
            dmz=draw(st.booleans()),
            dtn=draw(st.sampled_from(["", "dtn.example.org", " odd <&> "])),
            others=draw(st.sampled_from([(), (Host(f"10.1.{number}.0/24"), worker)])),
            urls=draw(st.sampled_from([(), ("osdf:///soykb", "dav://x/ü <&>")])),
            x=place,
            y=place,
        )
    if kind == "switch":
        return Node(name, kind, dpid=draw(st.sampled_from([0, number + 1, 2**64 - 1 - number])))
    others = [b if a == name else a for a, b in joined if name in (a, b)]
    macs = {other: mac for other in others if draw(st.booleans())}
    return Node(name, kind, macs=macs or None)


def _link(draw: st.DrawFn, a: str, b: str, number: int) -> Link:
    layer = draw(st.sampled_from(LAYERS))
    ends = [end for end in (a, b) if draw(st.booleans())]
    devices = [end for end in (a, b) if draw(st.booleans())]
    return Link(
        a,
        b,
        draw(st.floats(1e-3, 1e15) | st.integers(1, 10**15).map(float)),
        draw(st.floats(0, 1e9)),
        draw(st.floats(0, 0.999)),
        layer,
        {end: 2 * number + n + 1 for n, end in enumerate(ends)} or None,
        {end: f"eth{number}" for end in devices} or None,
        draw(st.none() | st.floats(0, 1e9)),
        0 if layer == "l3" else draw(st.integers(0, 4094)),
        guaranteed=draw(st.sampled_from((None, True, False))),
    )


def same(a: Topology, b: Topology) -> bool:
    """Whether two networks are the same, down to the order in which they were written."""
    return list(a.nodes.values()) == list(b.nodes.values()) and a.links == b.links


def demo() -> dict[str, Any]:
    """Two sites, two switches and a router; the section of adon.yml."""
    return {
        "nodes": [
            {"name": "mu", "kind": "site", "dtn": "dtn.mu.example.org", "address": "10.0.0.1"},
            {"name": "tacc", "kind": "site", "dmz": True},
            {"name": "s1", "kind": "switch", "dpid": 1},
            {"name": "s2", "kind": "switch", "dpid": 2},
            {"name": "r1", "kind": "router", "macs": {"s1": "02:00:00:00:0b:01"}},
        ],
        "links": [
            {"a": "mu", "b": "s1", "capacity": "1 Gb/s", "ports": {"s1": 1}},
            {"a": "tacc", "b": "s2", "capacity": "1 Gb/s", "ports": {"s2": 2}},
            {
                "a": "s1",
                "b": "s2",
                "layer": "l2",
                "capacity": "200 Mb/s",
                "delay": "26.5 ms",
                "jitter": "1 ms",
                "loss": 0.0001,
                "vlan": 100,
                "ports": {"s1": 10, "s2": 10},
                "devices": {"s1": "s1-a", "s2": "s2-a"},
            },
            {"a": "s1", "b": "r1", "layer": "l3", "capacity": "20 Mb/s", "rtt": "53 ms"},
            {"a": "r1", "b": "s2", "layer": "l3", "capacity": "20 Mb/s", "loss": 0.01},
        ],
    }
