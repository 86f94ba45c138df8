"""What an agent is told by whoever runs it, as values and from ``agent.yml`` (docs/agents.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from monitors.measurements.probes.command import Command
from monitors.measurements.probes.tools import TOOLS, tool_of
from monitors.workflows.service import check_workflows
from network_provisioner.base.errors import InputError
from network_provisioner.base.fields import known_keys, name, text, whole
from network_provisioner.base.units import parse_duration, parse_rate
from network_provisioner.client.credentials import long_enough, read_token
from network_provisioner.client.http1 import Tls

Peers = tuple[IPv4Network | IPv6Network, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What this agent does at most, whatever its broker says.

    ``tools`` it uses, ``rate_bps`` that a test may load the network with, ``peers`` it talks to
    (empty: any), seconds that a run may last, runs ``at_once``, ``ports`` that its servers may
    listen on, and how far both clocks together may be off for a one-way delay to mean anything.
    """

    tools: frozenset[str] = frozenset(TOOLS)
    rate_bps: float = 1e9
    peers: Peers = ()
    run_s: float = 300.0
    at_once: int = 8
    ports: tuple[int, int] = (1024, 65535)
    clocks_error_s: float = 0.01


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent. ``token`` says who it is; where ``tls`` has a certificate of ours, that does, and
    the token is not sent. ``bind`` is the address of ours that tests use ("": the system chooses),
    ``clock_error_s`` what this machine's clock is off by at most where its administrator knows it
    better than the kernel. ``workflows``: whose it follows and reports
    (:class:`~monitors.workflows.service.FollowService`)."""

    name: str
    broker: str
    token: str
    state: Path
    tls: Tls = field(default_factory=Tls)
    bind: str = ""
    limits: Limits = field(default_factory=Limits)
    commands: Mapping[str, Command] = field(default_factory=dict)
    clock_error_s: float | None = None
    workflows: tuple[str, ...] = ()
    version: str = ""


_KEYS = (
    "name", "broker", "token_file", "token", "ca", "certificate", "key", "state", "address",
    "clock_error", "limits", "commands", "workflows",
)  # fmt: skip
_LIMITS = ("tools", "rate", "peers", "run", "at_once", "ports", "clocks_error")
_COMMAND = ("argv", "unit", "timeout")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,200}\Z")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_MOST_WORDS = 100


def settings_from_dict(data: object, folder: Path, version: str) -> AgentSettings:
    """``folder`` is what relative paths begin at. Raises InputError."""
    known_keys(data, _KEYS, "agent")
    assert isinstance(data, Mapping)
    own = text(data, "name", "agent")
    if not _NAME.match(own):
        raise InputError(f"name: found {shown(own)}, expected a site, or SITE/HOST")
    tls = Tls(*(_file(data, key, folder) for key in ("ca", "certificate", "key")))
    if (tls.certificate is None) != (tls.key is None):
        raise InputError("found one of certificate and key, expected both or none")
    error = data.get("clock_error")
    workflows = data.get("workflows", [])
    if not isinstance(workflows, list) or not all(isinstance(w, str) for w in workflows):
        raise InputError(f"workflows: found {shown(workflows)}, expected a list of texts")
    check_workflows(workflows)
    return AgentSettings(
        name=own,
        broker=text(data, "broker", "agent"),
        token=_token(data, folder, needed=tls.certificate is None),
        state=folder / text(data, "state", "agent"),
        tls=tls,
        bind=_address(data.get("address", "")),
        limits=limits_from_dict(data.get("limits", {})),
        commands=commands_from_dict(data.get("commands", {})),
        clock_error_s=None if error is None else parse_duration(error, "clock_error"),
        workflows=tuple(workflows),
        version=version,
    )


def limits_from_dict(data: object) -> Limits:
    """Raises InputError."""
    known_keys(data, _LIMITS, "limits")
    assert isinstance(data, Mapping)
    usual = Limits()
    tools = data.get("tools", sorted(usual.tools))
    if not isinstance(tools, list):
        raise InputError(f"limits.tools: found {shown(tools)}, expected a list")
    return Limits(
        tools=frozenset(tool_of(tool, "limits.tools").name for tool in tools),
        rate_bps=parse_rate(data["rate"], "limits.rate") if "rate" in data else usual.rate_bps,
        peers=_peers(data.get("peers", [])),
        run_s=parse_duration(data["run"], "limits.run") if "run" in data else usual.run_s,
        at_once=whole(data.get("at_once", usual.at_once), "limits.at_once", 1000),
        ports=_ports(data.get("ports", list(usual.ports))),
        clocks_error_s=parse_duration(
            data.get("clocks_error", usual.clocks_error_s), "limits.clocks_error"
        ),
    )


def commands_from_dict(data: object) -> dict[str, Command]:
    """Raises InputError."""
    if not isinstance(data, Mapping):
        raise InputError(f"commands: found {shown(data)}, expected commands by name")
    return {str(key): _command(key, value) for key, value in data.items()}


def _command(key: object, value: object) -> Command:
    what = f"commands.{key}"
    if not isinstance(key, str) or not _COMMAND_NAME.match(key):
        raise InputError(f"commands: found {shown(key)}, expected a name of letters and digits")
    known_keys(value, _COMMAND, what)
    assert isinstance(value, Mapping)
    argv = value.get("argv")
    if (
        not isinstance(argv, list)
        or not 0 < len(argv) <= _MOST_WORDS
        or not all(isinstance(word, str) and "\0" not in word for word in argv)
        or not argv[0]
    ):
        raise InputError(
            f"{what}.argv: found {shown(argv)}, expected a list: the program and its arguments"
        )
    unit = name(value.get("unit", "1"), f"{what}.unit")
    timeout_s = parse_duration(value.get("timeout", 10.0), f"{what}.timeout")
    if timeout_s <= 0:
        raise InputError(f"{what}.timeout: found {timeout_s:g} s, expected more than 0 s")
    return Command(key, tuple(argv), unit, timeout_s)


def _token(data: Mapping[str, Any], folder: Path, needed: bool) -> str:
    given = ("token" in data) + ("token_file" in data)
    if not given and not needed:
        return ""
    if given != 1:
        raise InputError("found both or neither of token_file and token, expected one of them")
    if "token" not in data:
        return read_token(folder / text(data, "token_file", "agent"))
    if not isinstance(data["token"], str):  # not quoted: it is a secret
        raise InputError("token: found no text, expected a token")
    return long_enough(data["token"], "token")


def _file(data: Mapping[str, Any], key: str, folder: Path) -> str | None:
    return str(folder / name(data[key], key)) if data.get(key) is not None else None


def _address(value: object) -> str:
    try:
        return "" if value == "" else str(ip_address(name(value, "address")))
    except ValueError:
        raise InputError(f"address: found {shown(value)}, expected an IP address") from None


def _peers(value: object) -> Peers:
    if not isinstance(value, list):
        raise InputError(f"limits.peers: found {shown(value)}, expected a list of networks")
    try:
        return tuple(ip_network(name(item, "limits.peers"), strict=False) for item in value)
    except ValueError as error:
        raise InputError(f"limits.peers: {error}, expected one such as 192.0.2.0/24") from None


def _ports(value: object) -> tuple[int, int]:
    if isinstance(value, list | tuple) and len(value) == 2:
        first, last = (whole(port, "limits.ports", 65535) for port in value)
        if 1 <= first <= last:
            return first, last
    raise InputError(f"limits.ports: found {shown(value)}, expected the first and the last port")
