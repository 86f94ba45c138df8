"""Redirect rules: TCP between two sites goes through the relays at a circuit's ends. Pure.

    site A ── switch ═══ the circuit between the relays ═══ switch ── site B
                │                                             │
             relay A                                       relay B

At both switches what comes from the site goes to the relay, and what comes from the relay, sent in
the other site's name, to the site. Nothing but the Ethernet destination is rewritten. Rules are
told apart by the port that packets come in by. Circuits that relay the same packets share them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from itertools import pairwise

from network_provisioner.base.errors import InputError
from network_provisioner.controllers.groups import CircuitGroup, GroupKey
from network_provisioner.controllers.routes import (
    RateControl,
    host_pairs,
    named_packets,
    port_to,
    specific,
)
from network_provisioner.controllers.rules import (
    FLOW_PRIORITY,
    HOST_PRIORITY,
    REDIRECT_PRIORITY,
    TRANSIT_OWNER,
    TRANSIT_PRIORITY,
    FlowRule,
    Key,
    make_cookie,
)
from network_provisioner.topology.graph import Topology


def redirect_rules(
    topology: Topology, group: CircuitGroup, control: RateControl
) -> tuple[FlowRule, ...]:
    """The redirect rules of a group; none where it has no redirect, or answers another's data.

    Both directions have one priority, so that both of a connection's go the same way. Raises
    InputError where both ends are at one switch, or a host of the sites has no MAC address.
    """
    redirect, path = group.redirect, group.path
    if redirect is None or not group.data:
        return ()
    if path[1] == path[-2]:
        raise InputError(
            f"circuit {group.data[0]!r} has relays at one switch, {path[1]!r}, expected two"
        )
    pairs = [pair for pair in host_pairs(topology, redirect) if pair[0].version == 4]
    for host in (host for pair in pairs for host in pair):
        if not host.mac:
            raise InputError(
                f"topology: host {host.address} has no mac, expected one: relays of circuit "
                f"{group.data[0]!r} answer it"
            )
    named = named_packets(redirect.flows)
    packets = [(a, b, by, to) for a, b in pairs for _, by, to in named]
    ends = (
        (redirect.src, path, packets),
        (redirect.dst, path[::-1], [(b, a, to, by) for a, b, by, to in packets]),
    )
    text = sorted(f"{site}>{way[0]}" for site, way, _ in ends)
    rule = partial(
        FlowRule,
        cookie=make_cookie(TRANSIT_OWNER, f"redirect|{'|'.join(text)}"),
        expires_at=group.lease_until,
        hop=1,
        protocol="tcp",
    )
    priority = (FLOW_PRIORITY if redirect.flows else TRANSIT_PRIORITY) + REDIRECT_PRIORITY
    priority += HOST_PRIORITY if redirect.hosts else 0
    rules = []
    for site, way, leaving in ends:
        relay, switch = (topology.nodes[name] for name in way[:2])
        to_site, to_relay = (port_to(topology, switch, name) for name in (site, relay.name))
        crosses = not control.by_queue and any(hop in control.shaped for hop in pairwise(way))
        for own, far, by, to in leaving:
            first = priority + specific(own, far)
            rules += [
                rule(
                    switch.dpid, first, own.address, far.address, to_relay, in_port=to_site,
                    src_port=by, dst_port=to, dscp=0 if crosses else None, eth_dst=relay.mac,
                ),
                rule(
                    switch.dpid, first, far.address, own.address, to_site, in_port=to_relay,
                    src_port=to, dst_port=by, eth_dst=own.mac,
                ),
            ]  # fmt: skip
    return tuple(rules)


def shared_redirects(
    rules: Mapping[GroupKey, Collection[FlowRule]],
) -> dict[GroupKey, tuple[FlowRule, ...]]:
    """The redirect rules of all groups, with one for the same packets, for the longest lease.

    Raises InputError where two groups send the same packets to different relays.
    """
    laid: dict[Key, FlowRule] = {}
    for rule in (rule for installed in rules.values() for rule in installed):
        other = laid.get(rule.key, rule)
        if other.cookie != rule.cookie:
            raise InputError(
                f"two circuits send tcp from {rule.src} to {rule.dst} to different relays, "
                "expected the same two for what the switches cannot tell apart"
            )
        laid[rule.key] = max(other, rule, key=lambda it: it.expires_at)
    return {key: tuple(laid[rule.key] for rule in installed) for key, installed in rules.items()}
