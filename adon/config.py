"""``adon.yml``: one validated file. Unknown keys are rejected with a suggestion.

Sections: ``topology`` (the network), ``controller`` (which driver speaks to it), ``broker`` (where
it listens and keeps its state), ``templates`` (per application QSpec, RSpec, weights), ``pool``
(the HTCondor that site selection asks).
"""

from __future__ import annotations

import difflib
from pathlib import Path
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from adon.yamlfile import read_yaml
from network_provisioner.errors import InputError
from network_provisioner.template import templates_from_dict
from network_provisioner.topology import topology_from_dict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _checked_address(value: str) -> str:
    try:
        split_address(value, "")
    except InputError as error:
        # pydantic gathers ValueErrors and adds the place itself.
        raise ValueError(str(error).removeprefix(": ")) from None
    return value


class ControllerConfig(_Section):
    """Which driver carries the circuits.

    ``listen`` is where switches reach the embedded OpenFlow controller; ``exec`` is the command
    prefix for ``tc`` on the machine that holds the switches' ports.
    """

    driver: Literal["openflow", "simulated"] = "simulated"
    listen: str = "127.0.0.1:6653"
    exec: list[str] = Field(default_factory=list)

    @field_validator("listen")
    @classmethod
    def _host_port(cls, value: str) -> str:
        return _checked_address(value)


class BrokerConfig(_Section):
    """Where the broker listens (loopback unless told otherwise) and keeps its state."""

    listen: str = "127.0.0.1:8470"
    state: str = "adon-broker.sqlite"
    archive: str = "adon-archive.sqlite"
    token: str | None = None

    @field_validator("listen")
    @classmethod
    def _host_port(cls, value: str) -> str:
        return _checked_address(value)


class PoolConfig(_Section):
    """The HTCondor that site selection asks for slots and queues.

    ``collector`` is ``host:port``, empty for the one that CONDOR_CONFIG names.
    """

    collector: str = ""


class Config(_Section):
    """The whole file. Without ``pool`` no HTCondor is asked."""

    topology: dict[str, Any]
    controller: ControllerConfig = Field(default_factory=ControllerConfig)
    broker: BrokerConfig = Field(default_factory=BrokerConfig)
    templates: dict[str, dict[str, Any]] = Field(default_factory=dict)
    pool: PoolConfig | None = None


def split_address(value: str, what: str) -> tuple[str, int]:
    """``"127.0.0.1:8470"`` to host and port. Raises InputError."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
        raise InputError(f"{what}: found {shown(value)}, expected HOST:PORT such as 127.0.0.1:8470")
    return host, int(port)


_SECTIONS: dict[str, type[_Section]] = {
    "controller": ControllerConfig,
    "broker": BrokerConfig,
    "pool": PoolConfig,
}


def parse_config(data: object, where: str) -> Config:
    """Validate the parsed YAML of ``where``, network and templates too. Raises InputError with one
    line."""
    if not isinstance(data, dict):
        raise InputError(f"{where}: found {type(data).__name__}, expected a mapping of sections")
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{where}: {_problem(error.errors()[0])}") from None
    try:
        topology_from_dict(config.topology)
        templates_from_dict(config.templates)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return config


def _problem(first: ErrorDetails) -> str:
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r}{_suggestion(first['loc'])}"
    if first["type"] == "missing":
        return f"found no section {key!r}, expected the nodes and links of the network"
    said = first["msg"].removeprefix("Value error, ")
    if said.startswith("Input should be "):
        expected = said.removeprefix("Input should be ")
        return f"{key}: found {shown(first['input'])}, expected {expected}"
    return f"{key}: {said}"


def _suggestion(loc: tuple[int | str, ...]) -> str:
    model: type[_Section] = _SECTIONS.get(str(loc[0]), Config) if len(loc) > 1 else Config
    names = list(model.model_fields)
    close = difflib.get_close_matches(str(loc[-1]), names, n=1)
    return f", did you mean {close[0]!r}?" if close else f", expected one of {', '.join(names)}"


def load_config(path: Path) -> Config:
    """Read and validate ``adon.yml``. Raises InputError naming file and line or key."""
    return parse_config(read_yaml(path), str(path))
