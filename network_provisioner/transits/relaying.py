"""Relays (SOS) that carry the connections of transits: of which, and what their agents are told.

    put on the switches ─► chosen ─► agents are told ─► redirected ─► ended ─► drained ─► off
                                                           └─► agent lost, path elsewhere ─► direct

Relays are chosen once, before the connections of a transfer open: under those that run nothing is
redirected. What relays still hold of a transit that ends arrives over its circuit, which stays,
without a rate, while agents have connections of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from network_provisioner.base.controller import Circuit, Redirect
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import CLIENT, LIVE, SEEN, Transit, TransitRelay
from network_provisioner.base.units import format_rate
from network_provisioner.relay.agents import SILENT_S, RelayAgents
from network_provisioner.relay.decision import helps, settings
from network_provisioner.relay.sessions import Session
from network_provisioner.state.active_transits import ActiveTransits
from network_provisioner.state.circuits import owner
from network_provisioner.templates.lookup import service_of
from network_provisioner.templates.template import Template
from network_provisioner.topology.graph import Host, Link, Topology
from network_provisioner.transits.repository import Repository
from network_provisioner.transits.tuning import TransferTuning

PORTS = range(27_001, 28_000)
DRAIN_S = 30.0  # for what relays hold to arrive
START_S = 3.0  # for agents to find a broker that starts anew
_OF_SESSIONS = ("port", "streams", "congestion", "buffer_bytes", "chunk_bytes", "tls")


class _DirectError(Exception):
    """Why a transit is not relayed, in words."""


@dataclass(eq=False)
class Relaying:
    """Not thread-safe but for ``agents``, :meth:`has_news` and :meth:`described`: the broker
    holds its lock in every other call."""

    _topology: Topology
    _active: ActiveTransits
    _repository: Repository
    _tuning: TransferTuning
    agents: RelayAgents = field(default_factory=RelayAgents)
    unable: str = ""
    """Why no transit is relayed here, in words; "" where some may be."""
    _links: dict[str, Link] = field(default_factory=dict)  # of each relay
    _drained: dict[str, Transit] = field(default_factory=dict)  # by the ids of their circuits
    _secrets: dict[str, str] = field(default_factory=dict)  # of transits
    _used: frozenset[str] = frozenset()  # relays that have sessions
    _judged_from: float = 0.0

    def __post_init__(self) -> None:
        relays = {node.name for node in self._topology.nodes.values() if node.kind == "relay"}
        links = self._topology.whole_links
        self._links = {end: link for link in links for end in {link.a, link.b} & relays}

    def begin(self, possible: bool, now: float) -> None:
        """A broker starts at Unix second ``now``, and agents may need a moment to find it.
        ``possible``: the switches are its alone, and tell packets apart by their ports."""
        self._judged_from = now + START_S
        if not possible:
            self.unable = "the switches are others' too, or do not tell packets apart by ports"
        elif not self._links:
            self.unable = "the topology has no relay"

    # -- which transits ----------------------------------------------------------------------

    def choose(self, transit: Transit) -> None:
        """A transit comes on the switches. One that was there before, or for which this was said,
        stays as it is."""
        if transit.grant.installed_at or transit.relay:
            return
        template = self._active.template_of(transit)
        if template is None or template.relay == "never":
            return
        try:
            transit.relay = self._chosen(transit, template)
        except _DirectError as why:
            transit.relay = TransitRelay(why=str(why))

    def _chosen(self, transit: Transit, template: Template) -> TransitRelay:
        """Raises _DirectError."""
        if self.unable:
            raise _DirectError(self.unable)
        near, far = self._switches(transit)
        self._check_packets(transit)
        tls = template.relay_tls
        src, dst = (self._relay_at(switch, transit, tls) for switch in (near, far))
        figures = self._tuning.figures(transit)
        tuned = transit.grant.tuning or service_of(template)
        helped, why = helps(figures, tuned.streams or 1, tuned.buffer_bytes)
        if template.relay == "always":
            why = f"template {template.name!r} always asks for it; {why}"
        elif not helped:
            raise _DirectError(why)
        taken = {t.relay.port for t in self._relayed() if t.relay and {src, dst} & {*_relays(t)}}
        port = next((port for port in PORTS if port not in taken), None)
        if port is None:
            raise _DirectError(f"all ports of {src} and {dst} are taken")
        for drained in self._drained.values():
            same = any(mate is transit for mate in self._active.pairs.mates(drained))
            if same and {src, dst} != {*_relays(drained)}:
                raise _DirectError(f"other relays hold packets of transit {owner(drained.id)}")
        return TransitRelay(src, dst, port, **settings(figures), tls=tls, why=why)

    def _switches(self, transit: Transit) -> tuple[str, str]:
        """Between which its relays are to be. Raises _DirectError."""
        ends = _ends(transit)
        if len(ends) > 1:
            raise _DirectError("its paths begin or end at several switches")
        ((near, far),) = ends
        if near == far:
            raise _DirectError(f"both sites are at {near}")
        return near, far

    def _check_packets(self, transit: Transit) -> None:
        """Raises _DirectError where they cannot be redirected, or told from others."""
        if transit.request.min_bps <= 0:
            raise _DirectError("it has no rate of its own")
        if transit.request.ports_at in (CLIENT, SEEN):
            raise _DirectError("its connections are known only once they run")
        if not _is_tcp(transit):
            raise _DirectError("its flows are not all TCP")
        for site, hosts in zip(
            (transit.request.src, transit.request.dst), self._hosts(transit), strict=True
        ):
            if not hosts:
                raise _DirectError(f"the topology has no IPv4 address of {site}")
            for host in hosts:
                if not host.mac or host.is_prefix:
                    raise _DirectError(
                        f"{host.address} of {site}: expected the address of one host, with its MAC "
                        "address"
                    )
        mates = self._active.pairs.mates(transit)
        if mates:
            raise _DirectError(f"its packets are those of transit {mates[0].id} too")

    def _relay_at(self, switch: str, transit: Transit, tls: bool) -> str:
        """The first relay there that can be used, and has room. Raises _DirectError."""
        problems = []
        for name in (node.name for node in self._topology.relays_at(switch)):
            capacity = self._links[name].capacity_bps
            free = capacity - sum(t.request.min_bps for t in self._relayed() if name in _relays(t))
            problem = self.agents.unready(name, tls)
            if not problem and free < transit.request.min_bps:
                problem = (
                    f"relay {name!r} has {format_rate(free)} left of {format_rate(capacity)}, "
                    f"expected {format_rate(transit.request.min_bps)}"
                )
            if not problem:
                return name
            problems.append(problem)
        raise _DirectError(problems[0] if problems else f"there is no relay at {switch}")

    def check(self, transit: Transit) -> None:
        """A transit may have other paths or packets than before: it goes directly where its relays
        are not at the ends of these, or cannot carry those."""
        if not transit.relayed:
            return
        if self.unable:
            transit.relay = TransitRelay(why=self.unable)
            return
        at = tuple(
            self._links[name].other(name) for name in _relays(transit) if name in self._links
        )
        if _ends(transit) != {at}:
            transit.relay = TransitRelay(why="relayed until its path led elsewhere")
        elif not _is_tcp(transit):
            transit.relay = TransitRelay(why="relayed until its flows were not all TCP")

    def follow(self, now: float) -> tuple[list[Transit], list[str]]:
        """Have transits go directly whose agents are lost, and let go of what has been drained.
        Returns whose circuits may have changed, and the ids of circuits that are over."""
        lost: list[Transit] = []
        draining: list[Transit] = []
        over: list[str] = []
        if now < self._judged_from:
            return lost, over
        for transit in self._active.on_switches() if self._used else ():
            if transit.relayed and (problem := self._unready(transit)):
                transit.relay = TransitRelay(why=f"relayed until {problem}")
                lost.append(transit)
        self._repository.save(lost)
        for name, drained in list(self._drained.items()):
            # Others that have the same packets came to its session, and may need it.
            others = [t for t in self._active.pairs.mates(drained) if not t.relayed]
            ends = [drained.grant.released_at + DRAIN_S, *(t.grant.lease_until for t in others)]
            drained.grant.lease_until = max(ends)
            # An agent that is not silent has said by then what it holds.
            reported = now >= drained.grant.released_at + SILENT_S
            empty = reported and not self.agents.connections(owner(name))
            if empty or now >= drained.grant.lease_until or self._unready(drained):
                del self._drained[name]
                over.append(name)
            else:
                draining.append(drained)
        return [*lost, *draining], over

    def drain(self, transit: Transit, now: float) -> Transit:
        """What stays on the switches of a relayed transit that ends, for a while."""
        drained = transit.copy()
        name = f"{transit.id} drains"  # no transit's id has a space
        drained.request = replace(transit.request, id=name, min_bps=0.0)
        drained.grant.granted_bps = 0.0
        drained.grant.parts = [replace(part, granted_bps=0.0) for part in drained.grant.parts]
        drained.grant.queue, drained.grant.released_at = "", now
        drained.grant.lease_until = now + DRAIN_S
        self._drained[drained.id] = drained
        return drained

    # -- what agents are told ----------------------------------------------------------------

    def tell(self, circuits: Mapping[str, Circuit]) -> None:
        """Have agents carry what these circuits are redirected for, and nothing else."""
        if self.unable:
            return
        relayed = [
            (relayed_circuit, relayed_circuit.redirect)
            for relayed_circuit in circuits.values()
            if relayed_circuit.redirect
        ]
        # A new connection goes to the first that fits: who lives comes before what drains, and who
        # names ports, or hosts, before who does not.
        relayed.sort(key=lambda it: (it[0].id in self._drained, not it[1].flows, not it[1].hosts))
        ids = {owner(circuit.id) for circuit, _ in relayed}
        self._secrets = {i: self._secrets.get(i) or secrets.token_hex(16) for i in ids}
        by_agent: dict[str, list[Session]] = {}
        for circuit, redirect in relayed:
            for agent, session in self._sessions(circuit, redirect):
                by_agent.setdefault(agent, []).append(session)
        self._used = frozenset(by_agent)
        self.agents.want(by_agent)

    def _sessions(self, circuit: Circuit, redirect: Redirect) -> Iterator[tuple[str, Session]]:
        """Both agents' view of a relayed transit."""
        transit = self._drained.get(circuit.id) or self._active.all[circuit.id]
        relay, name = transit.relay, owner(circuit.id)
        hosts = [tuple(host.address for host in each) for each in self._hosts(transit)]
        same: dict[str, Any] = {key: getattr(relay, key) for key in _OF_SESSIONS} | {
            "secret": self._secrets[name],
            "flows": redirect.flows,
            "rate_bps": circuit.max_bps,
            "until": circuit.lease_until,
        }
        for here, there in (0, 1), (1, 0):
            peer = _relays(transit)[there]
            address = self._topology.nodes[peer].address
            near, far = hosts[here], hosts[there]
            session = Session(name, near, far, here == 0, peer, address, **same)
            yield _relays(transit)[here], session

    # -- for those who ask -------------------------------------------------------------------

    def has_news(self) -> bool:
        """Whether an agent is lost that carries connections."""
        return any(map(self.agents.unready, self._used))

    def check_known(self, name: str) -> None:
        """Raises BrokerError ``unknown_agent``."""
        if name not in self._links:
            known = ", ".join(self._links) or "(none)"
            raise BrokerError(
                f"unknown relay {name!r:.80}, expected one of the topology: {known}",
                "unknown_agent",
            )

    def count(self) -> int:
        """How many transits are relayed, or being drained."""
        return len(self._secrets)

    def described(self) -> list[dict[str, Any]]:
        """All relays; JSON-ready."""
        return [
            {
                "name": name,
                "switch": link.other(name),
                "address": self._topology.nodes[name].address,
                "unready": self.agents.unready(name),
                "transits": len(self.agents.assigned_sessions(name)[1]),
                "connections": self.agents.open_at(name),
            }
            for name, link in self._links.items()
        ]

    # -- within ------------------------------------------------------------------------------

    def _relayed(self) -> Iterable[Transit]:
        known = (*self._active.all.values(), *self._drained.values())
        return (transit for transit in known if transit.relayed and transit.state in LIVE)

    def _unready(self, transit: Transit) -> str:
        return next(filter(None, map(self.agents.unready, _relays(transit))), "")

    def _hosts(self, transit: Transit) -> list[tuple[Host, ...]]:
        """The hosts with IPv4 at its source, and at its destination."""
        hosts_of = []
        for number, site in enumerate((transit.request.src, transit.request.dst)):
            node = self._topology.site(site)
            named = node.host(transit.request.hosts[number]) if transit.request.hosts else None
            hosts = (named,) if named else node.hosts
            hosts_of.append(tuple(host for host in hosts if host.version == 4))
        return hosts_of


def _relays(transit: Transit) -> tuple[str, str]:
    return (transit.relay.src, transit.relay.dst) if transit.relay else ("", "")


def _ends(transit: Transit) -> set[tuple[str, ...]]:
    """The first and the last switch of each of its paths."""
    return {(path[1], path[-2]) for path in transit.grant.paths}


def _is_tcp(transit: Transit) -> bool:
    return all(flow.protocol == "tcp" for flow in transit.request.flows)
