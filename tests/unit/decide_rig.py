"""A topology, a ledger and an admission over it, and transits that hold bandwidth."""

from __future__ import annotations

import math
from typing import Any

from made_transit import made_transit

from network_provisioner.base.controller import Capabilities
from network_provisioner.base.model import Transit, TransitState
from network_provisioner.selection.limits import BrokerLimits
from network_provisioner.selection.outcomes import Grant, Never, Wait
from network_provisioner.selection.path_selector import PathSelector
from network_provisioner.selection.push import Movable
from network_provisioner.selection.transit import PathChoice
from network_provisioner.state.ledger import Ledger, PathPart
from network_provisioner.state.network_state import NetworkState
from network_provisioner.state.waitlist import Claims
from network_provisioner.templates.data import template_from_dict
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Link, Node, Topology

NOW = 1000.0


def template(**more: Any) -> Template:
    """One that takes any path and any rate, unless told otherwise."""
    body = {"qspec": {"min_throughput": 1}, "rspec": {"max_throughput": "1 Tb/s"}, **more}
    return template_from_dict("t", body)


def network(links: dict[str, float], delays: dict[str, float] | None = None) -> Topology:
    """``{"a-x": 100}``: bits per second; one letter is a node, capital letters are sites."""
    names = sorted({name for link in links for name in link.split("-")})
    nodes = [
        Node(name, "site" if name.isupper() else "switch", dpid=0 if name.isupper() else ord(name))
        for name in names
    ]
    delay = delays or {}
    return Topology(
        nodes, [Link(*link.split("-"), bps, delay.get(link, 0.001)) for link, bps in links.items()]
    )


class Desk:
    """Asks admission, and carries out what it grants as a broker would."""

    def __init__(
        self, topology: Topology, template: Template | None = None, max_paths: int = 99
    ) -> None:
        self.template = template or globals()["template"]()
        self.topology, self.ledger = topology, Ledger.of(topology)
        limits = BrokerLimits(reservable=1.0, max_paths=max_paths)
        self.selector = PathSelector(
            NetworkState(topology, self.ledger, can=Capabilities("none", multipath=True)), limits
        )
        self.held: dict[str, tuple[Transit, tuple[Any, ...]]] = {}
        self.together: list[set[str]] = []  # ids that must move together

    def transit(self, name: str, src: str, dst: str, low: float, **more: Any) -> Transit:
        """A request for 10 s unless told otherwise."""
        values = {"max_bps": math.inf, "lease_s": 10.0, **more}
        return made_transit(name, src, dst, TransitState.QUEUED, requested_bps=low, **values)

    def decide(
        self, transit: Transit, now: float = NOW, claimed: Claims | None = None, push: bool = True
    ) -> Grant | Wait | Never:
        """The verdict alone."""
        movable_of = (lambda name: self.movable(name, transit)) if push else None
        return self.selector.find(transit, self.template, now, None, claimed, movable_of)

    def ask(self, name: str, src: str, dst: str, low: float, **more: Any) -> Grant | Wait | Never:
        """The verdict, carried out where it is a grant."""
        transit = self.transit(name, src, dst, low, **more)
        verdict = self.decide(transit)
        if isinstance(verdict, Grant):
            self.carry_out(transit, verdict)
        return verdict

    def carry_out(self, transit: Transit, grant: Grant, now: float = NOW) -> None:
        """Reserves, and moves who has to move."""
        moved = [
            self.ledger.reservations[move.id].on(tuple(way.lane for way in move.ways), now)
            for move in grant.moves
        ]
        new = [*moved, grant.reservation(transit.id)]
        refusal = self.ledger.exchange([held.id for held in moved], new)
        if refusal is not None:
            raise AssertionError(f"granted more than is free: {refusal}")
        for move in grant.moves:
            self.held[move.id] = (self.held[move.id][0], move.ways)
        self.held[transit.id] = (transit, grant.parts)

    def hold(self, name: str, nodes: str, low: float, **more: Any) -> None:
        """A transit on this very path."""
        transit = self.transit(name, nodes[0], nodes[-1], low, **more)
        way = PathPart(self.topology.path(nodes), int(low), low)
        until = NOW + (transit.request.lease_s or 0)
        self.carry_out(transit, Grant((way,), NOW, until, PathChoice(None, (), ""), ""))

    def release(self, name: str) -> None:
        """It is over."""
        self.ledger.release(name)
        del self.held[name]

    def movable(self, name: str, newcomer: Transit) -> list[Movable]:
        """All who would have to move, or none where one has no lower priority."""
        names = next((sorted(group) for group in self.together if name in group), [name])
        names = [n for n in names if n in self.held]
        if any(self.held[n][0].request.priority >= newcomer.request.priority for n in names):
            return []
        movables = []
        for n in names:
            transit, ways = self.held[n]
            least = max(way.min_bps for way in ways)
            paths = self.selector.usable(transit, self.template, least)
            movables.append(Movable(n, transit.request.priority, paths, ways))
        return movables


def nodes_of(grant: Any) -> list[str]:
    """The paths of a grant, each as one word."""
    if not isinstance(grant, Grant):
        raise AssertionError(f"expected a grant, found {grant}")
    return ["".join(part.path.nodes) for part in grant.parts]
