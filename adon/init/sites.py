"""The sites and their data transfer nodes: from Pegasus's catalogs, the pool, DNS and a connection
to each."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlsplit

from network_provisioner.base.errors import AdonError, InputError
from network_provisioner.topology.graph import Topology

_PORTS = (2811, 443, 22)  # GridFTP, HTTPS, SSH: who refuses answers as well
_CONNECT_S = 1.0
_AT_ONCE = 64
_NO_HOSTS = ("s3", "s3s", "gs", "go", "osdf", "pelican", "stash")  # accounts, endpoints, buckets
_HERE = ("", "localhost", "127.0.0.1", "::1")
_PROGRAM_S = 20.0


@dataclass(frozen=True, slots=True)
class Dtn:
    """A data transfer node. ``name`` is its host name, "" if only the address is known;
    ``rtt_s`` None if it did not answer."""

    address: str
    name: str = ""
    rtt_s: float | None = None


def hosts_of_urls(urls: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The host names in pairs of site and URL, by site, in their order; none of this machine."""
    hosts: dict[str, list[str]] = {}
    for site, url in urls:
        names = hosts.setdefault(site, [])
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
        except ValueError:  # no URL
            continue
        if parts.scheme not in _NO_HOSTS and host not in _HERE and host not in names:
            names.append(host)
    return hosts


def catalog_urls(sites: Path | None, replicas: Path | None) -> Iterator[tuple[str, str]]:
    """Pairs of site and URL in Pegasus's site and replica catalogs. Raises InputError."""
    from site_selector.catalogs.documents import read_document  # noqa: PLC0415
    from site_selector.catalogs.entries import replicas_of, sites_of  # noqa: PLC0415
    from site_selector.catalogs.pegasus_sites import WHAT as SITES  # noqa: PLC0415
    from site_selector.catalogs.replicas import WHAT as REPLICAS  # noqa: PLC0415

    if sites is not None:
        for site in sites_of(read_document(sites, SITES)).values():
            yield site.name, ""
            for directory in site.directories:
                yield from ((site.name, server.url) for server in directory.servers)
    if replicas is not None:
        catalog = replicas_of(read_document(replicas, REPLICAS))
        for replica in (*catalog.entries.values(), *(entry for _, entry in catalog.patterns)):
            yield from replica.places


def given_sites(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``SITE=HOST`` of options, as pairs of site and URL. Raises InputError."""
    for text in texts:
        site, equal, host = (part.strip() for part in text.partition("="))
        if not (site and equal and host):
            raise InputError(f"--dtn: found {text!r}, expected SITE=HOST")
        yield site, f"//[{host}]" if host.count(":") > 1 and "[" not in host else f"//{host}"


def given_routers(texts: Sequence[str]) -> list[str]:
    """The IPv4 addresses of options. Raises InputError."""
    try:
        return [str(IPv4Address(text)) for text in texts]
    except ValueError as error:
        raise InputError(f"--router: {error}, expected an IPv4 address") from None


def sites_of_topology(topology: Topology) -> Iterator[tuple[str, str]]:
    """The sites of a network, as pairs of site and URL."""
    for name in topology.sites:
        hosts = topology.nodes[name].hosts
        yield from ((name, f"//{h.address}") for h in hosts if h.version == 4 and not h.is_prefix)


def pool_sites() -> set[str]:
    """Those of the pool's slots; none where no HTCondor is configured, or it does not answer."""
    if shutil.which("condor_config_val") is None:
        return set()
    from condor_plugins.collector import HTCondorPool  # noqa: PLC0415
    from condor_plugins.jobs.sites import site_of_slot  # noqa: PLC0415

    try:
        return {site for slot in HTCondorPool().slots() if (site := site_of_slot(slot))}
    except AdonError:
        return set()


def resolved(
    hosts: Mapping[str, Sequence[str]], note: Callable[[str], object]
) -> dict[str, list[Dtn]]:
    """The nodes of each site that have an IPv4 address; ``note`` gets a line for each other."""
    sites: dict[str, list[Dtn]] = {}
    used: dict[str, str] = {}
    for site, names in hosts.items():
        for name in names:
            try:
                info = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                why = getattr(error, "strerror", None) or str(error)
                note(f"site {site}: {name}: {why}; left out")
                continue
            address = str(info[0][4][0])
            if used.setdefault(address, site) != site:
                note(f"site {site}: {name} also belongs to site {used[address]}; left out")
            elif all(dtn.address != address for dtn in sites.get(site, ())):
                shown = "" if name == address else name
                sites.setdefault(site, []).append(Dtn(address, shown))
    rtts = round_trips([dtn.address for dtns in sites.values() for dtn in dtns])
    return {
        site: [replace(dtn, rtt_s=rtts.get(dtn.address)) for dtn in dtns]
        for site, dtns in sites.items()
    }


def connect_s(address: str, port: int) -> float | None:
    """Seconds for a connection to a port, or its refusal; None if nothing answers."""
    before = time.monotonic()
    try:
        with suppress(ConnectionRefusedError):
            socket.create_connection((address, port), _CONNECT_S).close()
    except OSError:
        return None
    return time.monotonic() - before


def round_trips(addresses: Sequence[str]) -> dict[str, float]:
    """Seconds to the addresses that answer at one of some usual ports, all asked at once."""
    ends = [(address, port) for address in addresses for port in _PORTS]
    if not ends:
        return {}
    with ThreadPoolExecutor(min(len(ends), _AT_ONCE)) as threads:
        answers = list(zip(ends, threads.map(lambda pair: connect_s(*pair), ends), strict=True))
    seconds: dict[str, float] = {}
    for (address, _), rtt_s in answers:
        if rtt_s is not None:
            seconds[address] = min(rtt_s, seconds.get(address, rtt_s))
    return seconds


def neighbours() -> dict[str, str]:
    """This machine's neighbours: MAC by IPv4 address."""
    try:
        done = subprocess.run(
            ["ip", "-4", "neigh", "show"],
            capture_output=True, text=True, check=False, timeout=_PROGRAM_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return read_neighbours(done.stdout)


def read_neighbours(text: str) -> dict[str, str]:
    """What ``ip neigh`` prints: MAC by IPv4 address."""
    macs = {}
    for fields in map(str.split, text.splitlines()):
        with suppress(ValueError, IndexError):
            macs[str(IPv4Address(fields[0]))] = fields[fields.index("lladdr") + 1]
    return macs
