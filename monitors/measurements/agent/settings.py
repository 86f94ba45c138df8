"""What an agent is told by whoever runs it, as values and from ``agent.yml`` (docs/agents.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

from monitors.measurements.agent.messages import Address
from monitors.measurements.probes.programs import Command
from monitors.measurements.probes.tools import TOOLS, tool_of
from monitors.workflows.service import check_workflows
from network_provisioner.base import fields
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import (
    STRICT,
    Duration,
    File,
    Name,
    Rate,
    Schema,
    Whole,
    checked,
    listed,
    matching,
    read,
)
from network_provisioner.client.credentials import long_enough, read_token
from network_provisioner.client.http1 import Tls

_File = Annotated[File, checked(fields.name)]
_Word = Annotated[str, matching(r"(?s)[^\0]*", "a text")]
_CommandName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "a name of letters and digits")
]
Port = Annotated[Whole, Field(ge=1, le=65535)]


def _network(value: object, what: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(fields.name(value, what), strict=False)
    except ValueError as error:
        raise InputError(f"{what}: {error}, expected one such as 192.0.2.0/24") from None


def _ordered(ports: tuple[int, int]) -> tuple[int, int]:
    if ports[0] > ports[1]:
        raise ValueError(f"found {list(ports)}, expected the first and the last port")
    return ports


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """What this agent does at most, whatever its broker says.

    ``tools`` it uses, ``rate_bps`` that a test may load the network with, ``peers`` it talks to
    (empty: any), seconds that a run may last, runs ``at_once``, ``ports`` that its servers may
    listen on, and how far both clocks together may be off for a one-way delay to mean anything.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    tools: frozenset[Annotated[str, checked(lambda v, what: tool_of(v, what).name)]] = frozenset(
        TOOLS
    )
    rate_bps: Annotated[Rate, Field(alias="rate")] = 1e9
    peers: tuple[Annotated[IPv4Network | IPv6Network, checked(_network)], ...] = ()
    run_s: Annotated[Duration, Field(alias="run")] = 300.0
    at_once: Annotated[Whole, Field(ge=0, le=1000)] = 8
    ports: Annotated[
        tuple[Port, Port], listed(2, "the first and the last port"), AfterValidator(_ordered)
    ] = (1024, 65535)
    clocks_error_s: Annotated[Duration, Field(alias="clocks_error")] = 0.01


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent. ``token`` says who it is; where ``tls`` has a certificate of ours, that does, and
    the token is not sent. ``bind`` is the address of ours that tests use ("": the system chooses),
    ``clock_error_s`` what this machine's clock is off by at most where its administrator knows it
    better than the kernel. ``workflows``: whose it follows and reports
    (:class:`~monitors.workflows.service.FollowService`). ``servers``: the ports of this host's
    transfer servers, whose connections it reports, ``disks`` and ``sockets``: whether it reports
    what these do (:mod:`~.host_reports`)."""

    name: str
    broker: str
    token: str
    state: Path
    tls: Tls = field(default_factory=Tls)
    bind: str = ""
    limits: AgentLimits = field(default_factory=AgentLimits)
    commands: Mapping[str, Command] = field(default_factory=dict)
    clock_error_s: float | None = None
    workflows: tuple[str, ...] = ()
    servers: frozenset[int] = frozenset()
    disks: bool = False
    sockets: bool = False
    version: str = ""


class _Command(Schema):
    argv: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=100)]
    unit: Name = "1"
    timeout: Annotated[Duration, Field(gt=0)] = 10.0


class _Agent(Schema):
    name: Annotated[str, matching(r"[A-Za-z0-9_.:/-]{1,200}", "a site, or SITE/HOST")]
    broker: Name
    token_file: _File | None = None
    token: Any = None  # no type: an error would show it
    ca: _File | None = None
    certificate: _File | None = None
    key: _File | None = None
    state: _File
    address: Address = ""
    clock_error: Duration | None = None
    limits: AgentLimits = AgentLimits()
    commands: dict[_CommandName, _Command] = Field(default={})
    workflows: tuple[str, ...] = ()
    servers: frozenset[Port] = frozenset()
    disks: bool = False
    sockets: bool = False


def settings_from_dict(data: object, folder: Path, version: str) -> AgentSettings:
    """``folder`` is what relative paths begin at. Raises InputError."""
    doc = read(_Agent, data, "agent", folder)
    if (doc.certificate is None) != (doc.key is None):
        raise InputError("found one of certificate and key, expected both or none")
    for name, command in doc.commands.items():
        if not command.argv[0]:
            raise InputError(f"commands.{name}.argv: found no program, expected one")
    check_workflows(list(doc.workflows))
    return AgentSettings(
        name=doc.name,
        broker=doc.broker,
        token=_token(doc),
        state=Path(doc.state),
        tls=Tls(doc.ca, doc.certificate, doc.key),
        bind=doc.address,
        limits=doc.limits,
        commands={
            name: Command(name, command.argv, command.unit, command.timeout)
            for name, command in doc.commands.items()
        },
        clock_error_s=doc.clock_error,
        workflows=doc.workflows,
        servers=doc.servers,
        disks=doc.disks,
        sockets=doc.sockets,
        version=version,
    )


def _token(doc: _Agent) -> str:
    if doc.token is None and doc.token_file is None and doc.certificate is not None:
        return ""
    if (doc.token is None) == (doc.token_file is None):
        raise InputError("found both or neither of token_file and token, expected one of them")
    if doc.token_file is not None:
        return read_token(Path(doc.token_file))
    if not isinstance(doc.token, str):  # not quoted: it is a secret
        raise InputError("token: found no text, expected a token")
    return long_enough(doc.token, "token")
