"""What an agent is told by whoever runs it, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from monitors.measurements.probes.command import Command
from monitors.measurements.probes.tools import TOOLS
from network_provisioner.http1 import Tls

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
