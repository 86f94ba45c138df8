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
from pathlib import Path
from reprlib import repr as shown
from typing import Any
from urllib.parse import urlsplit

from monitors.measurements.perfsonar.hosts import Hosts, hosts_from_dict
from network_provisioner import fields
from network_provisioner.errors import InputError
from network_provisioner.topology import Topology
from network_provisioner.units import parse_duration

_KEYS = ("archive", "hosts", "every", "back", "only", "ca", "token_file")
_LEAST_EVERY_S = 10.0


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
class Settings:
    """The whole section."""

    hosts: Hosts
    remotes: Sequence[Remote] = ()


def settings_from_list(
    data: Sequence[Mapping[str, Any]], topology: Topology | None, folder: Path
) -> Settings:
    """The section as values. Hosts hold for all entries, and what they do not name is looked for
    among the addresses of the topology's sites. ``folder``: where relative paths begin. Raises
    InputError for what cannot be meant."""
    known: list[tuple[str, str]] = []
    remotes: list[Remote] = []
    for place, entry in enumerate(data):
        what = f"perfsonar.{place}"
        fields.known_keys(entry, _KEYS, what)
        if not {"archive", "hosts"} & set(entry):
            raise InputError(f"{what}: found {shown(dict(entry))}, expected an archive or hosts")
        hosts = entry.get("hosts", {})
        if not isinstance(hosts, Mapping):
            raise InputError(f"{what}.hosts is {shown(hosts)}, expected sites by host")
        known += hosts_from_dict(hosts, topology)
        if "archive" in entry:
            remotes.append(_remote(entry, what, folder))
        elif len(entry) > 1:
            raise InputError(f"{what}: found {shown(dict(entry))}, expected an archive beside it")
    if topology is not None:
        sites = [(name, topology.nodes[name]) for name in topology.sites]
        known += [(name.lower(), name) for name, _ in sites]
        known += [(node.address, name) for name, node in sites if node.address]
    return Settings(Hosts(known), remotes)


def _remote(entry: Mapping[str, Any], what: str, folder: Path) -> Remote:
    url = fields.name(entry["archive"], f"{what}.archive")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query
    except ValueError:
        usable = False
    if not usable:
        raise InputError(
            f"{what}.archive is {shown(url)}, expected a URL such as"
            " https://ps.example.edu/esmond/perfsonar/archive/"
        )
    remote = Remote(url if url.endswith("/") else f"{url}/")
    every_s = parse_duration(entry.get("every", remote.every_s), f"{what}.every")
    if every_s < _LEAST_EVERY_S:
        raise InputError(f"{what}.every is {every_s:g} s, expected at least {_LEAST_EVERY_S:g} s")
    only = entry.get("only", {})
    if not isinstance(only, Mapping):
        raise InputError(f"{what}.only is {shown(only)}, expected filters such as tool-name")
    return Remote(
        remote.url,
        every_s,
        parse_duration(entry.get("back", remote.back_s), f"{what}.back"),
        {str(key): fields.name(value, f"{what}.only.{key}") for key, value in only.items()},
        _path(entry, "ca", what, folder),
        _path(entry, "token_file", what, folder),
    )


def _path(entry: Mapping[str, Any], key: str, what: str, folder: Path) -> Path | None:
    return folder / fields.name(entry[key], f"{what}.{key}") if key in entry else None
