"""``adon.yml``: one validated file. Unknown keys are rejected with a suggestion.

Sections: ``topology`` (the network), ``controller`` (which driver speaks to it), ``broker`` (where
it listens and keeps its state), ``security`` (who may ask it what), ``limits`` (how it deals with
links and leases), ``templates`` (per application QSpec, RSpec, weights), ``template_policy`` (what
may be saved in self-service), ``pool`` (the HTCondor that site selection asks), ``expansion`` (how
that pool grows and shrinks), ``monitoring`` (what is measured, by whom, and who is told).
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from reprlib import repr as shown
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
)

from adon.config.expansion import ExpansionConfig
from adon.config.monitoring import AgentConfig, MonitoringConfig
from adon.config.parts import Duration, Section
from adon.config.yamlfile import read_yaml
from network_provisioner.access import Role
from network_provisioner.base.errors import InputError
from network_provisioner.base.instants import instant
from network_provisioner.base.suggestions import did_you_mean, meant
from network_provisioner.stores.database_url import check_state
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.templates.sitepolicy import policy_from_dict
from network_provisioner.topology.data import topology_from_dict
from network_provisioner.topology.files import resolve

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from network_provisioner.topology.graph import Topology


def _checked_address(value: str) -> str:
    try:
        split_address(value, "")
    except InputError as error:
        # pydantic gathers ValueErrors and adds the place itself.
        raise ValueError(str(error).removeprefix(": ")) from None
    return value


def _unix_seconds(value: object) -> float:
    try:
        # YAML makes dates of what looks like one.
        return instant(value.isoformat() if isinstance(value, date) else value, "")
    except InputError as error:
        raise ValueError(f"found {str(error).removeprefix(' is ')}") from None


DRIVERS = ("simulated", "openflow", "opendaylight")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")


class ControllerConfig(Section):
    """Which driver carries the circuits.

    ``driver``     simulated, openflow, opendaylight, or one of your own as ``package.module:Class``
    ``bandwidth``  how switches keep rates: dscp-htb, queue, meter, none; auto is what they can
    ``listen``     where switches reach the embedded OpenFlow controller
    ``exec``       the command prefix for ``tc`` on the machine that holds the switches' ports
    ``url``, ``user``, ``password_file``, ``ca``  of a controller that is asked over HTTP(S), as
                   OpenDaylight is; ``ca`` is a PEM file, without it whom the system trusts
    ``options``    what a driver of your own takes
    """

    driver: str = "simulated"
    bandwidth: Literal["auto", "dscp-htb", "queue", "meter", "none"] = "auto"
    listen: str = "127.0.0.1:6653"
    exec: list[str] = Field(default_factory=list)
    url: str = ""
    user: str = ""
    password_file: str = ""
    ca: str = ""
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("driver")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in DRIVERS and not _CLASS.match(value):
            hint = did_you_mean(value, DRIVERS)
            raise ValueError(
                f"found {shown(value)}, expected {', '.join(DRIVERS)} or package.module:Class{hint}"
            )
        return value

    @field_validator("listen")
    @classmethod
    def _host_port(cls, value: str) -> str:
        return _checked_address(value)


class BrokerConfig(Section):
    """Where the broker listens (loopback unless told otherwise), keeps its state and what was
    measured: each in an SQLite file, or in ``postgresql://USER@HOST/DATABASE`` where others share
    it (docs/state.md, docs/archive.md)."""

    listen: str = "127.0.0.1:8470"
    state: str = "adon-broker.sqlite"
    archive: str = "adon-archive.sqlite"
    token: str | None = None

    @field_validator("listen")
    @classmethod
    def _host_port(cls, value: str) -> str:
        return _checked_address(value)

    @field_validator("state", "archive")
    @classmethod
    def _file_or_database(cls, value: str) -> str:
        try:
            check_state(value)
        except InputError as error:
            raise ValueError(str(error)) from None
        return value


class TokenConfig(Section):
    """Who may ask what. One of ``token_file``, ``sha256`` and ``token``; none of them where a
    client certificate of this name stands for it.

    ``expires``   the first instant at which it no longer counts: ISO 8601, UTC where no zone is
                  named; here in Unix seconds
    ``users``     the users it may ask for, "*" for all; a researcher's default is its own name
    ``projects``  the projects it may ask for; without them any
    """

    name: str = Field(min_length=1, max_length=200)
    role: Role
    token: str | None = Field(default=None, repr=False)
    token_file: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{64}$")
    expires: Annotated[float, BeforeValidator(_unix_seconds)] | None = None
    users: list[str] | Literal["*"] | None = None
    projects: list[str] | None = None


class TlsConfig(Section):
    """PEM files. ``clients``: who signs the certificates that clients must show; without it none
    is asked for."""

    certificate: str
    key: str
    clients: str | None = None


class SecurityConfig(Section):
    """Who may ask the broker what, and how the line to it is protected. See docs/security.md."""

    tokens: list[TokenConfig] = Field(default_factory=list)
    tls: TlsConfig | None = None


class LimitsConfig(Section):
    """How the broker deals with links and leases; what is left out is as
    :class:`network_provisioner.selection.admission.BrokerLimits` has it.

    ``reservable``     the part of each link that may be reserved
    ``max_lease``      no lease is longer
    ``unsized_lease``  the lease of a transfer whose size nobody knows
    ``max_paths``      how many candidate paths are looked at
    ``aging``          what waits so long counts as one priority higher, so that nobody starves
    """

    reservable: Annotated[float, Field(gt=0, le=1)] | None = None
    max_lease: Duration | None = None
    unsized_lease: Duration | None = None
    max_paths: Annotated[int, Field(ge=1, le=64)] | None = None
    aging: Duration | None = None


class PoolConfig(Section):
    """The HTCondor that site selection asks for slots and queues.

    ``collector`` is ``host:port``, empty for the one that CONDOR_CONFIG names.
    """

    collector: str = ""


class Config(Section):
    """The whole file. Without ``pool`` no HTCondor is asked. ``topology`` is the network itself, or
    was ``{"file": NAME}`` (:func:`network_provisioner.topology.files.resolve`)."""

    topology: dict[str, Any]
    controller: ControllerConfig = Field(default_factory=ControllerConfig)
    broker: BrokerConfig = Field(default_factory=BrokerConfig)
    security: SecurityConfig = Field(default_factory=SecurityConfig)
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    templates: dict[str, dict[str, Any]] = Field(default_factory=dict)
    template_policy: dict[str, Any] = Field(default_factory=dict)
    pool: PoolConfig | None = None
    expansion: ExpansionConfig | None = None
    monitoring: MonitoringConfig | None = None


def split_address(value: str, what: str) -> tuple[str, int]:
    """``"127.0.0.1:8470"`` to host and port. Raises InputError."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
        raise InputError(f"{what}: found {shown(value)}, expected HOST:PORT such as 127.0.0.1:8470")
    return host, int(port)


_SECTIONS: dict[str, type[Section]] = {
    "controller": ControllerConfig,
    "broker": BrokerConfig,
    "security": SecurityConfig,
    "security.tokens": TokenConfig,
    "security.tls": TlsConfig,
    "limits": LimitsConfig,
    "pool": PoolConfig,
    "expansion": ExpansionConfig,
    "monitoring": MonitoringConfig,
    "monitoring.agents": AgentConfig,
}


def parse_config(data: object, where: str) -> Config:
    """Validate the parsed YAML of ``where``, network and templates too. Raises InputError with one
    line."""
    if not isinstance(data, dict):
        raise InputError(f"{where}: found {type(data).__name__}, expected a mapping of sections")
    config = checked(Config, data, where)
    try:
        topology = resolve(config.topology, Path(where).parent)
        network = topology_from_dict(topology)
        templates_from_dict(config.templates)
        policy_from_dict(config.template_policy)
        if config.monitoring is not None:
            check_monitoring(config.monitoring, network)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return config.model_copy(update={"topology": topology})


_Model = TypeVar("_Model", bound=Section)


def checked(model: type[_Model], data: object, where: str) -> _Model:
    """``data`` as one section. Raises InputError with one line."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = error.errors()
        # A slip in a key is also a key that is missing.
        first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
        raise InputError(f"{where}: {_problem(first)}") from None


def _problem(first: ErrorDetails) -> str:
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r}{_suggestion(first['loc'])}"
    if first["type"] == "missing" and len(first["loc"]) > 1:
        return f"found no key {key!r}, expected it"
    if first["type"] == "missing":
        return f"found no section {key!r}, expected the nodes and links of the network"
    said = first["msg"].removeprefix("Value error, ")
    if first["loc"][-1] in ("token", "sha256"):  # what was found may be a secret
        return f"{key}: {said}"
    if said.startswith("Input should be "):
        expected = said.removeprefix("Input should be ")
        return f"{key}: found {shown(first['input'])}, expected {expected}"
    return f"{key}: {said}"


def _suggestion(loc: tuple[int | str, ...]) -> str:
    place = ".".join(part for part in loc[:-1] if isinstance(part, str))
    model: type[Section] = _SECTIONS.get(place, Config)
    names = list(model.model_fields)
    return ", " + meant(loc[-1], names, f"expected one of {', '.join(names)}")


def check_monitoring(settings: MonitoringConfig, network: Topology) -> None:
    """Whether the section can be used. Raises InputError."""
    from adon.service.parts import check  # noqa: PLC0415  # what a command without it never reads

    check(settings, network)


def load_config(path: Path) -> Config:
    """Read and validate ``adon.yml``. Raises InputError naming file and line or key."""
    return parse_config(read_yaml(path), str(path))
