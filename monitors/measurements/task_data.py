"""Measurement tasks and the agreement as plain data (adon.yml, REST)::

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
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any

from monitors.measurements.probes.tools import Tool, tool_of
from monitors.measurements.tasks import Agreement, LinkId, Task, check
from network_provisioner.base.errors import InputError
from network_provisioner.base.fields import known_keys, name, text, whole
from network_provisioner.base.suggestions import meant
from network_provisioner.base.units import bits, parse_duration, parse_rate
from network_provisioner.controllers.routes import default_path
from network_provisioner.topology.graph import Topology

_TASK = ("tool", "from", "to", "every", "for", "within", "load", "options")
_AGREEMENT = ("links", "domains")
_DOMAIN = ("links", "nodes", "most", "at_once")
_MOST_AT_ONCE = 1_000_000


FOR_S: Mapping[str, float] = {
    "tcp": 10.0, "udp": 10.0, "echo": 5.0, "ping": 5.0, "trace": 10.0, "host": 1.0, "command": 10.0,
}  # fmt: skip
"""For how long a tool runs where nothing is said, in seconds."""

_HEADERS_BYTES = 28  # IPv4 and UDP or ICMP
_TRACE_BPS = 20e3


def site_of(endpoint: str) -> str:
    """The site of ``mu/dtn2`` is ``mu``."""
    return endpoint.partition("/")[0]


def tasks_from_dict(section: object, topology: Topology) -> dict[str, Task]:
    """All tasks, by name. Raises InputError for what cannot be meant."""
    if not isinstance(section, Mapping):
        raise InputError(f"tasks is {shown(section)}, expected a mapping by name")
    return {
        key: task_from_dict(name(key, "the name of a task"), item, topology)
        for key, item in section.items()
    }


def task_from_dict(task_name: str, item: object, topology: Topology, once: bool = False) -> Task:
    """When a task is made, how long it takes, and what it needs; ``once``: of one run, which says
    neither ``every`` nor ``within``. Raises InputError for what cannot be meant."""
    what = f"task {task_name!r}"
    known_keys(item, [k for k in _TASK if not once or k not in ("every", "within")], what)
    assert isinstance(item, Mapping)  # known_keys says so
    tool = tool_of(item.get("tool"), f"{what}: tool")
    options = item.get("options") or {}
    if not isinstance(options, Mapping):
        raise InputError(f"{what}: options is {shown(options)}, expected a mapping by name")
    checked = tool.checked(options, f"{what}: options")
    source = _endpoint(item, "from", what, topology)
    target = ""
    if tool.ends:
        target = _endpoint(item, "to", what, topology)
        if target == source:
            raise InputError(f"{what} is from {source!r} to itself, expected two ends")
    elif item.get("to") is not None:
        raise InputError(f"{what}: to is {shown(item['to'])}, but {tool.name} has one end alone")
    duration_ms = _ms(item.get("for", FOR_S[tool.name]), f"{what}: for")
    if duration_ms < tool.least_s * 1000:
        raise InputError(
            f"{what}: for is {shown(item.get('for'))}, but {tool.name} needs {tool.least_s:g} s at "
            "least"
        )
    period_ms = duration_ms if once else _ms(_there(item, "every", what), f"{what}: every")
    links, capacity_bps = _path(source, target, what, topology)
    task = Task(
        task_name,
        period_ms,
        duration_ms,
        _ms(item["within"], f"{what}: within") if "within" in item else period_ms,
        frozenset((source, target)) if target else frozenset(),
        links,
        _whole_bps(_load(item, tool, checked, capacity_bps, what)) if links else 0.0,
    )
    check(task)
    return task


def agreement_from_dict(section: object, topology: Topology) -> Agreement:
    """The agreement; without anything said nothing is bounded. Raises InputError."""
    known_keys(section, _AGREEMENT, "agreement")
    assert isinstance(section, Mapping)  # known_keys says so
    names = _links(topology)
    links: dict[LinkId, float] = {}
    for key, value in _mapping(section, "links", "agreement").items():
        what = f"agreement: links.{key}"
        link = _link(key, "agreement: links", names)
        links[link] = _whole_bps(_bound(value, what, topology.link(*link).capacity_bps))
    domains: dict[str, frozenset[LinkId]] = {}
    domain_bps: dict[str, float] = {}
    at_once: dict[str, int] = {}
    for key, item in _mapping(section, "domains", "agreement").items():
        domain, what = name(key, "agreement: a domain's name"), f"agreement: domain {key!r}"
        known_keys(item, _DOMAIN, what)
        domains[domain] = _members(item, what, names, topology)
        if "most" in item:
            domain_bps[domain] = _whole_bps(parse_rate(item["most"], f"{what}: most"))
        if "at_once" in item:
            at_once[domain] = whole(item["at_once"], f"{what}: at_once", _MOST_AT_ONCE)
        if "most" not in item and "at_once" not in item:
            raise InputError(f"{what} bounds nothing, expected 'most' or 'at_once'")
    return Agreement(links, domains, domain_bps, at_once)


def _endpoint(item: Mapping[str, Any], key: str, what: str, topology: Topology) -> str:
    return known_end(text(item, key, what), f"{what}: {key}", topology)


def known_end(endpoint: str, what: str, topology: Topology) -> str:
    """A site of the topology, or a host of one. Raises InputError with one that may be meant."""
    site, slash, host = endpoint.partition("/")
    if site not in topology.sites or (slash and not host):
        hint = meant(site, topology.sites, f"sites are {', '.join(topology.sites)}")
        raise InputError(f"{what} is {shown(endpoint)}, expected a site or SITE/HOST; {hint}")
    return endpoint


def _path(
    source: str, target: str, what: str, topology: Topology
) -> tuple[frozenset[LinkId], float]:
    """The links that best effort takes, and the narrowest one's capacity."""
    src, dst = site_of(source), site_of(target)
    if not target or src == dst:
        return frozenset(), 0.0
    path = default_path(topology, src, dst)
    if path is None:
        raise InputError(f"{what}: no path joins {src!r} with {dst!r}, expected one to measure")
    return frozenset(link_id(a, b) for a, b in path.hops), path.capacity_bps


def link_id(a: str, b: str) -> LinkId:
    """The link between two nodes, in either direction."""
    return (a, b) if a < b else (b, a)


def _load(
    item: Mapping[str, Any],
    tool: Tool,
    options: Mapping[str, Any],
    capacity_bps: float,
    what: str,
) -> float:
    """What it puts on the network, in bit/s: as said, as its options have it, or all there is."""
    if item.get("load") is not None:
        return parse_rate(item["load"], f"{what}: load")
    if tool.load:
        rate_bps = options.get("rate")
        return capacity_bps if rate_bps is None else min(float(rate_bps), capacity_bps)
    if "interval" in options:
        return float(bits(options["length"] + _HEADERS_BYTES) / options["interval"])
    return _TRACE_BPS


def _whole_bps(rate_bps: float) -> float:
    """Without the fractions that come of units, so that sums are what people expect of them."""
    return float(round(rate_bps))


def _there(item: Mapping[str, Any], key: str, what: str) -> object:
    if key not in item:
        raise InputError(f"{what} has no {key!r}, expected a time such as '5 min'")
    return item[key]


def _ms(value: object, what: str) -> int:
    """A time as whole milliseconds, at least one."""
    found = parse_duration(value, what) * 1000
    if found < 1 or not math.isclose(found, round(found), rel_tol=1e-12):
        raise InputError(f"{what} is {shown(value)}, expected whole milliseconds, at least one")
    return round(found)


def _links(topology: Topology) -> dict[str, LinkId]:
    """Every link by both of its names, ``a-b`` and ``b-a``."""
    ends = [(link.a, link.b) for link in topology.links]
    return {f"{x}-{y}": link_id(x, y) for a, b in ends for x, y in ((a, b), (b, a))}


def _link(value: object, what: str, names: Mapping[str, LinkId]) -> LinkId:
    found = names.get(value) if isinstance(value, str) else None
    if found is None:
        hint = meant(value, names, "expected two neighbours such as 'a-b'")
        raise InputError(f"{what} names the link {shown(value)}, {hint}")
    return found


def _bound(value: object, what: str, capacity_bps: float) -> float:
    """A rate, or a share of the link's capacity in percent."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        share = value.rstrip()[:-1].strip()
        try:
            percent = float(share)
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise InputError(f"{what} is {shown(value)}, expected 0 % to 100 %")
        return capacity_bps * percent / 100
    return parse_rate(value, what)


def _members(
    item: Mapping[str, Any], what: str, names: Mapping[str, LinkId], topology: Topology
) -> frozenset[LinkId]:
    """The links that a domain names, and those with an end at a node that it names."""
    found = {_link(value, what, names) for value in _list(item, "links", what)}
    for value in _list(item, "nodes", what):
        if not isinstance(value, str) or value not in topology.nodes:
            hint = meant(value, topology.nodes, "expected a node of the topology")
            raise InputError(f"{what} names the node {shown(value)}, {hint}")
        found |= {link_id(x.a, x.b) for x in topology.links if value in (x.a, x.b)}
    if not found:
        raise InputError(f"{what} has no links, expected 'links' or 'nodes'")
    return frozenset(found)


def _list(item: Mapping[str, Any], key: str, what: str) -> list[object]:
    value = item.get(key, [])
    if not isinstance(value, list):
        raise InputError(f"{what}: {key} is {shown(value)}, expected a list")
    return value


def _mapping(item: Mapping[str, Any], key: str, what: str) -> Mapping[str, Any]:
    value = item.get(key, {})
    if not isinstance(value, Mapping):
        raise InputError(f"{what}: {key} is {shown(value)}, expected a mapping by name")
    return value
