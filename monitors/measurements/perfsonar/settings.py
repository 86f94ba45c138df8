"""Section ``monitoring.perfsonar`` of adon.yml.

perfsonar:
  - hosts: {ps-bw.mu.example.edu: mu, "*.tacc.example.edu": tacc, 10.3.0.0/16: iplant}
  - archive: https://ps.example.edu/esmond/perfsonar/archive/
    every: 10 min
    back: 7 d
    only: {tool-name: pscheduler/iperf3}
    ca: ps-ca.pem
    token_file: ps-token
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from reprlib import repr as shown
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import Duration, Name, Schema, checked, read
from network_provisioner.base.units import parse_duration
from network_provisioner.topology.graph import Topology

_LEAST_EVERY_S = 10.0
_LONGEST = 255


@dataclass(frozen=True, slots=True)
class Remote:
    """An archive to read.

    ``url`` of its list of measurements, ending in ``/``; ``every_s`` between two readings;
    ``back_s``: how far back the first one goes; ``only``: filters as the archive knows them;
    ``ca``: certificates to trust instead of the system's; ``token_file``: what to show it.
    """

    url: str
    every_s: float = 600.0
    back_s: float = 7 * 86_400.0
    only: Mapping[str, str] = field(default_factory=dict)
    ca: Path | None = None
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class PerfsonarSettings:
    """The whole section."""

    hosts: Hosts
    remotes: Sequence[Remote] = ()


def _url(value: object, what: str) -> str:
    url = fields.name(value, what)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query
    except ValueError:
        usable = False
    if not usable:
        raise InputError(
            f"{what}: found {shown(url)}, expected a URL such as"
            " https://ps.example.edu/esmond/perfsonar/archive/"
        )
    return url if url.endswith("/") else f"{url}/"


def _every(value: object, what: str) -> float:
    every_s = parse_duration(value, what)
    if every_s < _LEAST_EVERY_S:
        raise InputError(f"{what}: found {every_s:g} s, expected at least {_LEAST_EVERY_S:g} s")
    return every_s


class _Entry(Schema):
    archive: Annotated[str, checked(_url)] | None = None
    hosts: dict[Name, Name] | None = None
    every: Annotated[float, checked(_every)] = 600.0
    back: Duration = 7 * 86_400.0
    only: dict[str, Name] = Field(default={})
    ca: Name | None = None
    token_file: Name | None = None


def settings_from_list(
    data: Sequence[Mapping[str, Any]], topology: Topology | None, folder: Path
) -> PerfsonarSettings:
    """The section as values. Hosts hold for all entries, and what they do not name is looked for
    among the addresses of the topology's sites. ``folder``: where relative paths begin. Raises
    InputError for what cannot be meant."""
    known: list[tuple[str, str]] = []
    remotes: list[Remote] = []
    for place, item in enumerate(data):
        what = f"perfsonar.{place}"
        entry = read(_Entry, item, what)
        if entry.archive is None and entry.hosts is None:
            raise InputError(f"{what}: found {shown(dict(item))}, expected an archive or hosts")
        for host, end in (entry.hosts or {}).items():
            site = end.partition("/")[0]
            if topology is not None and site not in topology.sites:
                raise InputError(
                    f"{what}.hosts.{host}: found site {site!r}, expected one of "
                    f"{', '.join(sorted(topology.sites))}"
                )
            known.append((host.lower(), end))
        if entry.archive is not None:
            ca, token_file = (
                None if path is None else folder / path for path in (entry.ca, entry.token_file)
            )
            remotes.append(
                Remote(entry.archive, entry.every, entry.back, entry.only, ca, token_file)
            )
        elif len(item) > 1:
            raise InputError(f"{what}: found {shown(dict(item))}, expected an archive beside it")
    if topology is not None:
        sites = [topology.nodes[name] for name in topology.sites]
        known += [(site.name.lower(), site.name) for site in sites]
        known += [(site.address, site.name) for site in sites if site.address]
    return PerfsonarSettings(Hosts(known), remotes)


class Hosts:
    """Names of hosts, patterns (``*.example.edu``), addresses and networks (``10.1.0.0/16``), each
    with the site, or ``SITE/HOST``, that it stands for.

    The first that fits counts; a host that none fits keeps its own name: what is measured there is
    kept, but no decision about a site reads it.
    """

    def __init__(self, known: Sequence[tuple[str, str]] = ()) -> None:
        self._known = tuple(known)
        self._networks = {
            pattern: network
            for pattern, _ in self._known
            if (network := _network(pattern)) is not None
        }

    def name(self, *written: object) -> str:
        """The end that is meant by one of these ways to write it, the first one that is known.

        A port or the brackets of an address are left away. Raises InputError where none is a name.
        """
        names = [host for host in map(_host, written) if host]
        if not names:
            raise InputError(f"found {shown(written)}, expected the name or address of a host")
        for host in names:
            for pattern, end in self._known:
                if self._fits(pattern, host):
                    return end
        return names[0]

    def _fits(self, pattern: str, host: str) -> bool:
        network = self._networks.get(pattern)
        if network is None:
            return fnmatchcase(host, pattern)
        try:
            return ip_address(host) in network
        except ValueError:
            return False


def _network(pattern: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(pattern)
    except ValueError:
        return None


def _host(written: object) -> str:
    """The host alone of ``host``, ``host:port``, ``[address]:port`` or a URL; "" for what is
    none."""
    if not isinstance(written, str) or not 0 < len(written) <= _LONGEST:
        return ""
    text = written.strip()
    try:
        return str(ip_address(text))
    except ValueError:
        pass
    try:
        host = urlsplit(text if "://" in text else f"//{text}").hostname or ""
    except ValueError:
        return ""
    plain = host.isprintable() and not set(host) & set("> @/")
    return host.lower().rstrip(".") if plain else ""
