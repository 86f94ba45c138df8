"""The sections of ``adon.yml``."""

from __future__ import annotations

import re
import socket
from datetime import date
from ipaddress import ip_address
from reprlib import repr as shown
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from network_provisioner.access import Role
from network_provisioner.base.database_url import check_state
from network_provisioner.base.errors import InputError, did_you_mean
from network_provisioner.base.instants import instant
from network_provisioner.base.schema import (
    Duration,
    File,
    Name,
    Number,
    Schema,
    Whole,
    checked,
    matching,
)
from network_provisioner.issuers import Issuer
from network_provisioner.selection.limits import Quota

DRIVERS = ("simulated", "openflow", "opendaylight")
ALL_ADDRESSES = ("0.0.0.0", "[::]")  # what a broker that listens at all of them has as host
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")
_PLAIN = "letters, digits and any of _.- (at most 50)"
_PORT = re.compile("[0-9]{1,5}")
_HOST = re.compile(r"[^\s:\[\]/\x00-\x1f]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")


def split_address(value: object, what: str) -> tuple[str, int]:
    """``"127.0.0.1:8470"`` or ``"[::1]:8470"`` to host and port. Raises InputError."""
    text = str(value)
    host, _, port = text.rpartition(":")
    is_ipv6 = _is_ipv6(host[1:-1]) and f"[{host[1:-1]}]" == host
    if _is_port(port) and (is_ipv6 or _HOST.fullmatch(host)):
        return host, int(port)
    if host == ":" and text != "::1":  # of all addresses
        host = "::"
    port = port.rstrip("]") if _is_port(port.rstrip("]")) else "8470"
    if _is_ipv6(host.strip("[]")):
        example = f"[{host.strip('[]')}]:{port}, with the IPv6 address in brackets"
    elif _is_ipv6(text.strip("[]")):
        example = f"[{text.strip('[]')}]:8470, with the IPv6 address in brackets"
    elif _HOST.fullmatch(host):
        example = f"{host}:{port}, with a port from 1 to 65535"
    else:
        example = "127.0.0.1:8470"
    raise InputError(f"{what}: found {shown(value)}, expected HOST:PORT such as {example}")


def _is_port(text: str) -> bool:
    return bool(_PORT.fullmatch(text)) and 0 < int(text) < 65536


def _is_ipv6(text: str) -> bool:
    try:
        return ip_address(text).version == 6
    except ValueError:
        return False


def _address(value: object, what: str) -> object:
    split_address(value, what)
    return value


def _driver(value: object, what: str) -> object:
    if isinstance(value, str) and value not in DRIVERS and not _CLASS.match(value):
        hint = did_you_mean(value, DRIVERS)
        raise InputError(
            f"{what}: found {shown(value)}, expected {', '.join(DRIVERS)} or "
            f"package.module:Class{hint}"
        )
    return value


def _place(value: object, _: str) -> object:
    if isinstance(value, str):
        check_state(value)
    return value


def _instant(value: object, what: str) -> float:
    # YAML makes dates of what looks like one, and a number of one without dashes.
    if isinstance(value, int) and len(str(value)) == 8:
        value = str(value)
    return instant(value.isoformat() if isinstance(value, date) else value, what)


def _secret(value: object, _: str) -> object:
    """What was found is not said: it may be a secret."""
    if value is not None and not isinstance(value, str):
        raise InputError("found no text, expected a text")
    return value


def _hash(value: object, _: str) -> object:
    if value is not None and not (isinstance(value, str) and _SHA256.match(value)):
        raise InputError("found something else, expected 64 hexadecimal digits")
    return value


Span = Annotated[Duration, Field(gt=0)]
"""Seconds, more than 0, written with a unit: ``15 min``."""
Address = Annotated[str, checked(_address)]
HostName = Annotated[
    str,
    matching(
        r"[^\s:\[\]/]*[^\s:\[\]/.]|\[[0-9A-Fa-f:.]+\]",
        "a host name such as adon.example.org, or an IPv6 address in brackets: no port, no URL",
    ),
]
Place = Annotated[File, checked(_place), Field(validate_default=True)]


class ControllerConfig(Schema):
    """Which driver carries the circuits.

    ``driver``     simulated, openflow, opendaylight, or one of your own as ``package.module:Class``
    ``bandwidth``  how switches keep rates: dscp-htb, queue, meter, none; auto is what they can
    ``listen``     where switches reach the embedded OpenFlow controller
    ``exec``       the command prefix for ``tc`` on the machine that holds the switches' ports
    ``url``, ``user``, ``password_file``, ``ca``  of a controller that is asked over HTTP(S), as
                   OpenDaylight is; ``ca`` is a PEM file, without it whom the system trusts
    ``watch``      whether links that fail are looked for
    ``options``    what a driver of your own takes
    """

    driver: Annotated[str, checked(_driver)] = "simulated"
    bandwidth: Literal["auto", "dscp-htb", "queue", "meter", "none"] = "auto"
    listen: Address = "127.0.0.1:6653"
    exec: list[str] = Field(default_factory=list)
    url: str = ""
    user: str = ""
    password_file: File = ""
    ca: File = ""
    watch: bool = True
    options: dict[str, Any] = Field(default_factory=dict)


class BrokerConfig(Schema):
    """Where the broker listens (loopback by default), keeps its state and what was
    measured: each in an SQLite file, or in ``postgresql://USER@HOST/DATABASE`` where others share
    it (docs/state.md, docs/archive.md). ``names`` are more host names by which clients may call a
    broker that has no tokens. ``address`` is where other brokers on its database reach it (default:
    ``listen``, with the host's name where that is all addresses)."""

    listen: Address = "127.0.0.1:8470"
    names: list[HostName] = Field(default_factory=list)
    address: Address | None = None
    state: Place = "adon-broker.sqlite"
    archive: Place = "adon-archive.sqlite"
    token: Annotated[str | None, checked(_secret)] = None


class TokenConfig(Schema):
    """Who may ask what. One of ``token_file``, ``sha256`` and ``token``; none of them where a
    client certificate of this name stands for it.

    ``expires``   the first instant at which it no longer counts: ISO 8601, UTC where no zone is
                  named; here in Unix seconds
    ``users``     the users it may ask for, "*" for all; a researcher's default is its own name
    ``projects``  the projects it may ask for; without them any
    """

    name: str = Field(min_length=1, max_length=200)
    role: Role
    token: Annotated[str | None, checked(_secret)] = Field(default=None, repr=False)
    token_file: File | None = None
    sha256: Annotated[str | None, checked(_hash)] = None
    expires: Annotated[float, checked(_instant)] | None = None
    users: list[str] | Literal["*"] | None = None
    projects: list[str] | None = None


class TlsConfig(Schema):
    """PEM files. ``clients``: who signs the certificates that clients must show; without it none
    is asked for. ``brokers``: who signs those of other brokers on the same database (default: the
    system's list)."""

    certificate: File
    key: File
    clients: File | None = None
    brokers: File | None = None


class SecurityConfig(Schema):
    """Who may ask the broker what, and how the line to it is protected. See docs/security.md."""

    tokens: list[TokenConfig] = Field(default_factory=list)
    issuers: list[Issuer] = Field(default_factory=list)
    tls: TlsConfig | None = None


class LimitsConfig(Schema):
    """How the broker deals with links and leases; what is left out is as
    :class:`network_provisioner.selection.admission.BrokerLimits` has it.

    ``reservable``     the part of each link that may be reserved
    ``max_lease``      no lease is longer
    ``unsized_lease``  the lease of a transfer of unknown size
    ``max_paths``      how many candidate paths are looked at
    ``aging``          what waits so long counts as one priority higher, so that no transit starves
    ``quotas``         what each user or project of a name may hold, ``"*"`` for everybody else
    """

    reservable: Annotated[float, Field(gt=0, le=1)] | None = None
    max_lease: Span | None = None
    unsized_lease: Span | None = None
    max_paths: Annotated[int, Field(ge=1, le=64)] | None = None
    aging: Span | None = None
    quotas: dict[Literal["user", "project"], dict[Name, Quota]] = Field(default_factory=dict)


class PoolConfig(Schema):
    """The HTCondor that site selection asks for slots and queues.

    ``collector`` is ``host:port``, empty for the one that CONDOR_CONFIG names. ``holdings`` names a
    file of what applications hold of which HTCondor does not know.
    """

    collector: str = ""
    holdings: File = ""


class FlavourConfig(Schema):
    """A kind of machine: ``price`` per hour, and how long it takes from the request until its slot
    is in the pool, with the standard deviation, until that is known from some that booted.
    ``cores`` and ``memory_mb`` (1024 for each core) are of the driver startd alone."""

    price: Annotated[Number, Field(ge=0)] = 0.0
    cores: Annotated[Whole, Field(ge=1)] | None = None
    memory_mb: Annotated[Whole, Field(ge=1)] | None = None
    boot: Span | None = None
    boot_spread: Annotated[Duration, Field(ge=0)] | None = None


class OpenStackConfig(Schema):
    """Names of what is in the cloud, as in
    :class:`condor_plugins.pool.cloud.openstack.OpenStackSettings`, and

    ``commands``     what a machine runs first, by a shell (docs/clouds.md)
    ``identity``     whom its token names, as ``worker@pool``; without, who asks for it
    ``boot_within``  how long its token lets it join
    ``life``         after which it is drained, for HTCondor ends its session with the pool
    """

    cloud: Name
    image: Name
    network: Name
    key: str = ""
    security_groups: list[str] = Field(default_factory=list)
    group: str = ""
    qos_policy: str = ""
    zone: str = ""
    commands: list[str] = Field(default_factory=list)
    identity: str = ""
    boot_within: Span = 1800.0
    life: Span = 72_000.0


class ExpansionConfig(Schema):
    """How the pool grows, before work arrives, and shrinks (docs/clouds.md).

    ``driver``         where its machines come from: an OpenStack, HTCondor's daemons on this
                       machine (startd), or a program of the admin's (command)
    ``pool``           whose machines they are: their names begin with it
    ``flavours``       by name; the program of the driver command tells its own
    ``cores``, ``machines``, ``money_per_day``  of all machines together, at most
    ``worth``          what waiting is worth, relative to the price of a machine
    ``every``          between two looks
    ``lease``          how long a lease counts that names no time
    ``jobs_take``      how long jobs run of which nothing is known
    ``site``           whose jobs they take, as PegasusSite and AdonSite of their slots
    ``idle``           a machine that nobody has claimed for so long shuts HTCondor down
    ``config``         settings of HTCondor for them, that go before ours
    ``directory``      what ``adon pool run`` locks, and has the machines of the driver startd

    Of the driver startd, see :class:`condor_plugins.pool.cloud.workerconfig.StartdSettings`:
    ``release``, ``token_file``, ``environment``; of the driver command: ``command``, the program
    and its first arguments, and ``timeout``, how long it may take; ``openstack`` of that.
    """

    driver: Literal["openstack", "startd", "command"] = "startd"
    pool: Annotated[str, matching(r"[A-Za-z0-9_.-]{1,50}", _PLAIN)] = "adon"
    flavours: dict[Name, FlavourConfig] = Field(default_factory=dict)
    cores: Annotated[Whole, Field(ge=1)] | None = None
    machines: Annotated[Whole, Field(ge=1)] = 16
    money_per_day: Annotated[Number, Field(gt=0)] | None = None
    worth: Annotated[Number, Field(gt=0)] = 10.0
    every: Span = 15.0
    lease: Span = 3600.0
    jobs_take: Span = 600.0
    site: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$")] = ""
    idle: Span = 600.0
    config: dict[str, str] = Field(default_factory=dict)
    directory: Annotated[File, Field(validate_default=True)] = "adon-workers"
    release: File = "/usr"
    token_file: File = ""
    environment: dict[str, str] = Field(default_factory=dict)
    command: list[str] = Field(default_factory=list)
    timeout: Span = 60.0
    openstack: OpenStackConfig | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        driver, named = self.driver, self.flavours
        if driver == "command":
            if not self.command:
                raise ValueError("driver 'command': found no command, expected a program to call")
            if named:
                raise ValueError(
                    "driver 'command': found flavours, expected none: its program lists them"
                )
            return self
        if not named:
            raise ValueError(f"driver {driver!r}: found no flavours, expected one at least")
        if driver == "openstack" and self.openstack is None:
            raise ValueError("driver 'openstack': found no openstack, expected its settings")
        for name, flavour in named.items():
            what = f"flavour {name!r}: found"
            if driver == "startd" and flavour.cores is None:
                raise ValueError(f"{what} no cores, expected how many it has")
            if driver == "openstack" and (flavour.cores or flavour.memory_mb):
                raise ValueError(f"{what} cores or memory_mb, expected none: the cloud has them")
        return self


class AgentConfig(Schema):
    """An agent that the broker knows. Its token is in ``security.tokens`` under the same name,
    with the role ``agent``.

    ``name``     the site, or ``SITE/HOST`` where a site has several
    ``address``  where the other agents reach it
    ``ports``    first and last port that its servers may listen on
    """

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:/-]+$")]
    address: str
    ports: tuple[int, int] = (5201, 5210)


class MonitoringConfig(Schema):
    """What is measured, by whom, and who is told. See docs/measuring.md.

    ``agents``       who measures
    ``tasks``        what, by name (:mod:`monitors.measurements.task_data`)
    ``paths``        how candidate paths are measured, False for not at all
                     (:mod:`monitors.measurements.candidate_paths`)
    ``agreement``    how much load measurements may put on links and domains
    ``access``       who may start what between which sites, and see which results
    ``anomalies``    what is watched how closely (:mod:`monitors.alerts.anomalies.settings`)
    ``notices``      who is notified of what, and how (:mod:`monitors.alerts.notices.targets`)
    ``stuck_after``  a workflow in which nothing changes for so long is stuck
    ``retention``    how long measurements are kept whole, and how long as roll-ups
    ``workflows``    whose workflows the broker itself follows: ``user``, ``all``, or directories
    ``perfsonar``    esmond-style archives that are read
                     (:mod:`monitors.measurements.perfsonar.settings`)
    """

    agents: list[AgentConfig] = Field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    paths: dict[str, Any] | bool = True
    agreement: dict[str, Any] = Field(default_factory=dict)
    access: list[dict[str, Any]] = Field(default_factory=list)
    anomalies: dict[str, Any] = Field(default_factory=dict)
    notices: list[dict[str, Any]] = Field(default_factory=list)
    stuck_after: Span = 1800.0
    retention: dict[str, Any] = Field(default_factory=dict)
    workflows: list[str] = Field(default_factory=list)
    perfsonar: list[dict[str, Any]] = Field(default_factory=list)


class Config(Schema):
    """The whole file. Without ``pool`` no HTCondor is asked. ``topology`` is the network itself, or
    was ``{"file": NAME}`` (:func:`network_provisioner.topology.files.resolve`). Paths are absolute:
    relative ones count from the folder of the file."""

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

    @property
    def broker_url(self) -> str:
        """Where the broker answers; no certificate is for ``0.0.0.0``."""
        host, _ = split_address(self.broker.listen, "broker.listen")
        return self.broker_address if host in ALL_ADDRESSES else self._url(self.broker.listen)

    @property
    def broker_address(self) -> str:
        """The URL by which other brokers reach it."""
        host, port = split_address(self.broker.listen, "broker.listen")
        own = f"{socket.getfqdn()}:{port}" if host in ALL_ADDRESSES else self.broker.listen
        return self._url(self.broker.address or own)

    def _url(self, address: str) -> str:
        return f"http{'s' if self.security.tls else ''}://{address}"
