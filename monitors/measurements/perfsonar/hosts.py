"""Which site a host of perfSONAR's belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from reprlib import repr as shown
from urllib.parse import urlsplit

from network_provisioner import fields
from network_provisioner.errors import InputError
from network_provisioner.topology import Topology

_LONGEST = 255


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


def hosts_from_dict(data: Mapping[str, object], topology: Topology | None) -> list[tuple[str, str]]:
    """A mapping from hosts to ends. Raises InputError for an end at a site that there is not."""
    known = []
    for pattern, end in data.items():
        host = fields.name(pattern, "perfsonar.hosts: a host").lower()
        meant = fields.name(end, f"perfsonar.hosts.{host}")
        site = meant.partition("/")[0]
        if topology is not None and site not in topology.sites:
            raise InputError(
                f"perfsonar.hosts.{host}: found site {site!r}, expected one of "
                f"{', '.join(sorted(topology.sites))}"
            )
        known.append((host, meant))
    return known


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
