"""Measurement tasks and the agreement as people write them (adon.yml, REST; docs/measuring.md)::

tasks:
  mu-tacc-tcp: {tool: tcp_throughput, from: mu, to: tacc, every: 1 h, for: 10 s, within: 30 min,
                options: {streams: 4}}
  mu-cpu:      {tool: host, from: mu, every: 1 min}
agreement:
  links: {s1-r1: 10 Mb/s, mu-s1: 50 %}
  domains:
    campus: {nodes: [mu, local, s1], most: 500 Mb/s, at_once: 2}
    wide:   {links: [s1-r1, r1-s2], at_once: 1}
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Annotated, Any

from pydantic import Field

from monitors.archive.knowledge import path_subject
from monitors.measurements.agent_registry import RegisteredAgent
from monitors.measurements.probes.tools import Tool, tool_of
from monitors.measurements.tasks import Agreement, LinkId, Task, check
from network_provisioner.base.errors import InputError, meant
from network_provisioner.base.schema import Name, Rate, Schema, Whole, checked, read
from network_provisioner.base.units import bits, parse_duration, parse_rate
from network_provisioner.controllers.routes import default_path
from network_provisioner.topology.graph import Path, Topology

FOR_S: Mapping[str, float] = {
    "tcp": 10.0, "udp": 10.0, "echo": 5.0, "ping": 5.0, "trace": 10.0, "host": 1.0, "command": 10.0,
}  # fmt: skip
"""For how long a tool runs where nothing is said, in seconds."""

HELD_BY: Mapping[str, str] = {"echo": "udp", "tcp": "tcp", "udp": "udp"}
"""The tools whose packets go to a port of the server's, and its protocol."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}\Z")
_MOST_AT_ONCE = 1_000_000
_HEADERS_BYTES = 28  # IPv4 and UDP or ICMP
_TRACE_BPS = 20e3


def _ms(value: object, what: str) -> int:
    """A time as whole milliseconds, at least one."""
    ms = parse_duration(value, what) * 1000
    if ms < 1 or not math.isclose(ms, round(ms), rel_tol=1e-12):
        raise InputError(f"{what} is {shown(value)}, expected whole milliseconds, at least one")
    return round(ms)


def _bound(value: object, what: str) -> tuple[float, bool]:
    """A rate in bit/s, or with True a share of the link's capacity."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        try:
            percent = float(value.rstrip()[:-1])
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise InputError(f"{what} is {shown(value)}, expected 0 % to 100 %")
        return percent / 100, True
    return parse_rate(value, what), False


_Ms = Annotated[int, checked(_ms)]


class _Once(Schema):
    """What a single measurement is, how long it takes and what it needs."""

    tool: Annotated[Any, checked(tool_of)]
    source: Name = Field(alias="from")
    to: Name | None = None
    lasts: _Ms | None = Field(default=None, alias="for")
    load: Rate | None = None
    options: dict[str, Any] | None = None


class _Task(_Once):
    """The same again and again: how often, and how late after its release it may be over."""

    every: _Ms
    within: _Ms | None = None
    via: list[Name] | None = None


class _Domain(Schema):
    links: list[str] = Field(default=[])
    nodes: list[str] = Field(default=[])
    most: Rate | None = None
    at_once: Annotated[Whole, Field(ge=0, le=_MOST_AT_ONCE)] | None = None


class _Agreement(Schema):
    links: dict[str, Annotated[tuple[float, bool], checked(_bound)]] = Field(default={})
    domains: dict[Name, _Domain] = Field(default={})


@dataclass(frozen=True, slots=True)
class Definition:
    """What is measured: ``src`` is the agent that begins, ``dst`` the other end, "" where there is
    none; ``address`` is where ``dst`` is reached. ``options`` are all of the tool's, as plain
    values; ``task`` says when, and what it needs. ``nodes`` is the path that its packets are held
    to, empty for the way that best effort takes."""

    tool: Tool
    src: str
    dst: str
    address: str
    options: Mapping[str, Any] = field(hash=False)
    task: Task
    nodes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The task's."""
        return self.task.name

    @property
    def subject(self) -> str:
        """Of its measurements."""
        if self.nodes:
            return path_subject(self.nodes)
        return f"{self.src}>{self.dst}" if self.dst else self.src

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that take part; of two, the client first."""
        return (self.src, self.dst) if self.tool.ends == 2 else (self.src,)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it may report."""
        if self.tool.name == "command":
            return (f"custom:{self.options['command']}",)
        return self.tool.metrics


def site_of(endpoint: str) -> str:
    """The site of ``mu/dtn2`` is ``mu``."""
    return endpoint.partition("/")[0]


def tasks_from_dict(section: object, topology: Topology) -> dict[str, Task]:
    """All tasks of a section, by name. Raises InputError for what cannot be meant."""
    if not isinstance(section, Mapping):
        raise InputError(f"tasks is {shown(section)}, expected a mapping by name")
    return {key: definition_of(key, item, topology).task for key, item in section.items()}


def definition_of(
    name: str, body: object, topology: Topology,
    members: Mapping[str, RegisteredAgent] | None = None, once: bool = False,
) -> Definition:  # fmt: skip
    """A task as ``body`` has it. Its ends are among ``members``, or anywhere at the topology's
    sites where none are given; ``once``: of one run, which says neither ``every`` nor ``within``.

    Raises InputError for a tool, an end, an option or a time that cannot be meant.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise InputError(
            f"name of a task: found {shown(name)}, expected up to 100 letters, digits and any of "
            ". _ : -"
        )
    what = f"task {name!r}"
    doc = read(_Once if once else _Task, body, what)
    tool: Tool = doc.tool
    options = {key: value for key, value in (doc.options or {}).items() if key != "key"}
    values = tool.checked(options, f"{what}: options")
    if tool.name == "command" and not values["command"]:
        raise InputError(f"{what}: options.command: found none, expected the name of a command")
    source, _ = _end(doc.source, f"{what}: from", topology, members)
    target, address = "", ""
    if not tool.ends and doc.to is not None:
        raise InputError(f"{what}: to: found {shown(doc.to)}, but {tool.name} has one end alone")
    if tool.ends:
        if doc.to is None:
            raise InputError(
                f"{what}: found no 'to', expected the end that {tool.name} measures to"
            )
        target, address = _end(doc.to, f"{what}: to", topology, members, alone=tool.ends == 1)
        if target == source:
            raise InputError(f"{what} is from {source!r} to itself, expected two ends")
    duration_ms = doc.lasts or round(FOR_S[tool.name] * 1000)
    if duration_ms < tool.least_s * 1000:
        raise InputError(
            f"{what}: for: found {duration_ms / 1000:g} s, but {tool.name} needs "
            f"{tool.least_s:g} s at least"
        )
    period_ms = doc.every if isinstance(doc, _Task) else duration_ms
    deadline_ms = doc.within if isinstance(doc, _Task) else None
    via = doc.via if isinstance(doc, _Task) and doc.via else ()
    path = _path(source, target, what, topology, via)
    if via:
        _check_held(tool, (source, target), what, topology, members)
    links = frozenset(link_id(a, b) for a, b in path.hops) if path else frozenset[LinkId]()
    capacity_bps = path.capacity_bps if path else 0.0
    load_bps = _load(doc.load, tool, values, capacity_bps) if links else 0.0
    hosts = frozenset((source, target)) if target else frozenset[str]()
    task = Task(
        name, period_ms, duration_ms, deadline_ms or period_ms, hosts, links, _whole_bps(load_bps)
    )
    check(task)
    return Definition(
        tool, source, target, address, values, task, path.nodes if path and via else ()
    )


def agreement_from_dict(section: object, topology: Topology) -> Agreement:
    """The agreement; without anything said nothing is bounded. Raises InputError."""
    doc = read(_Agreement, section, "agreement")
    names = _links(topology)
    links: dict[LinkId, float] = {}
    for key, (amount, is_share) in doc.links.items():
        link = _link(key, "agreement: links", names)
        most_bps = amount * topology.link(*link).capacity_bps if is_share else amount
        links[link] = _whole_bps(most_bps)
    for name, domain in doc.domains.items():
        if domain.most is None and domain.at_once is None:
            raise InputError(
                f"agreement: domain {name!r} bounds nothing, expected 'most' or 'at_once'"
            )
    bounded = doc.domains.items()
    return Agreement(
        links,
        {name: _inside(domain, f"agreement: domain {name!r}", names, topology)
         for name, domain in bounded},
        {name: _whole_bps(domain.most) for name, domain in bounded if domain.most is not None},
        {name: domain.at_once for name, domain in bounded if domain.at_once is not None},
    )  # fmt: skip


def known_end(endpoint: str, what: str, topology: Topology) -> str:
    """A site of the topology, or a host of one. Raises InputError with one that may be meant."""
    site, slash, host = endpoint.partition("/")
    if site not in topology.sites or (slash and not host):
        hint = meant(site, topology.sites, f"sites are {', '.join(topology.sites)}")
        raise InputError(f"{what} is {shown(endpoint)}, expected a site or SITE/HOST; {hint}")
    return endpoint


def _end(
    end: str, what: str, topology: Topology, members: Mapping[str, RegisteredAgent] | None,
    alone: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """An end and its address: an agent's, or where it is measured to ``alone``, a site's own."""
    if members is None:
        return known_end(end, what, topology), ""
    if end in members:
        return end, members[end].address
    reachable: dict[str, str] = {}
    if alone:
        sites = (topology.nodes[name] for name in topology.sites)
        reachable = {site.name: site.dtn or site.address for site in sites}
    if reachable.get(end):
        return end, reachable[end]
    known = sorted({*members, *(name for name, address in reachable.items() if address)})
    raise InputError(f"{what}: found {shown(end)}, {_near(end, known)}")


def _near(end: str, known: Iterable[str]) -> str:
    return meant(end, known, f"expected one of {', '.join(known) or 'monitoring.agents'}")


def _path(
    source: str, target: str, what: str, topology: Topology, via: Sequence[str]
) -> Path | None:
    """The path through ``via``, else the one that best effort takes; None within a site."""
    src, dst = site_of(source), site_of(target)
    if not target or src == dst:
        return None
    if via:
        try:
            return topology.path((src, *via, dst))
        except InputError as error:
            raise InputError(f"{what}: via: {error}") from None
    path = default_path(topology, src, dst)
    if path is None:
        raise InputError(f"{what}: no path joins {src!r} with {dst!r}, expected one to measure")
    return path


def _check_held(
    tool: Tool, ends: Sequence[str], what: str, topology: Topology,
    members: Mapping[str, RegisteredAgent] | None,
) -> None:  # fmt: skip
    """Raises InputError where a switch could not tell the packets from others."""
    if tool.name not in HELD_BY:
        raise InputError(
            f"{what}: via: found it for {tool.name}, expected one of {', '.join(HELD_BY)}, whose "
            "packets can be held to a path by their port"
        )
    if members is None:
        return
    for end in ends:
        expected, address = topology.nodes[site_of(end)].address, members[end].address
        if expected != address:
            raise InputError(
                f"{what}: via: agent {end!r} has the address {address}, expected "
                f"{expected or 'one'}, the site's own in the topology: rules are for that"
            )


def link_id(a: str, b: str) -> LinkId:
    """The link between two nodes, in either direction."""
    return (a, b) if a < b else (b, a)


def _load(
    given_bps: float | None, tool: Tool, options: Mapping[str, Any], capacity_bps: float
) -> float:
    """Its load on the network, bit/s: as given, by its options, or the whole capacity."""
    if given_bps is not None:
        return given_bps
    if tool.load:
        rate_bps = options.get("rate")
        return capacity_bps if rate_bps is None else min(float(rate_bps), capacity_bps)
    if "interval" in options:
        return float(bits(options["length"] + _HEADERS_BYTES) / options["interval"])
    return _TRACE_BPS


def _whole_bps(rate_bps: float) -> float:
    """Rounded, so that sums have no fractions that come from units."""
    return float(round(rate_bps))


def _links(topology: Topology) -> dict[str, LinkId]:
    """Every link by both of its names, ``a-b`` and ``b-a``, and by the one it was given."""
    ends = [(link.a, link.b) for link in topology.links]
    named = {link.name: link_id(link.a, link.name) for link in topology.whole_links if link.name}
    return {f"{x}-{y}": link_id(x, y) for a, b in ends for x, y in ((a, b), (b, a))} | named


def _link(name: str, what: str, names: Mapping[str, LinkId]) -> LinkId:
    if name not in names:
        hint = meant(name, names, "expected two neighbours such as 'a-b'")
        raise InputError(f"{what} names the link {shown(name)}, {hint}")
    return names[name]


def _inside(
    domain: _Domain, what: str, names: Mapping[str, LinkId], topology: Topology
) -> frozenset[LinkId]:
    """The links that a domain names, and those with an end at a node that it names."""
    links = {_link(name, what, names) for name in domain.links}
    for node in domain.nodes:
        if node not in topology.nodes:
            hint = meant(node, topology.nodes, "expected a node of the topology")
            raise InputError(f"{what} names the node {shown(node)}, {hint}")
        links |= {link_id(x.a, x.b) for x in topology.links if node in (x.a, x.b)}
    if not links:
        raise InputError(f"{what} has no links, expected 'links' or 'nodes'")
    return frozenset(links)
