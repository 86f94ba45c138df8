"""What broker and agents tell each other, as values and as JSON.

An agent asks for its assignments (``GET /v1/agents/NAME/assignments``) and posts results
(``POST /v1/agents/NAME/results``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from reprlib import repr as shown
from typing import Annotated, Any

from pydantic import Field

from monitors.base.measurement import Measurement
from monitors.measurements.probes.probe import Role
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import Number, Whole, checked, matching

Text = Annotated[str, matching(r"[!-~]{1,300}", "a name")]
Subject = Annotated[str, matching(r"[ -~]{1,300}", "what is measured")]


def _address(value: object, what: str) -> str:
    try:
        return "" if value == "" else str(ip_address(value if isinstance(value, str) else ""))
    except ValueError:
        raise InputError(f"{what}: found {shown(value)}, expected an IP address") from None


Address = Annotated[str, checked(_address)]
"""An IP address, or nothing."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One agent's part in one measurement.

    ``id`` is the measurement's, the same for both ends; ``at`` (Unix seconds) is when it starts,
    and it is over ``duration_s`` later, whatever happens. ``subject`` is what is measured
    (``mu>tacc``, ``mu>tacc via s1-s2``, or ``mu`` for a host), ``peer`` the address of the other
    end, ``port`` where its server listens. ``options`` are the tool's own.
    """

    id: Text
    task: Text
    tool: str
    role: Role
    subject: Subject
    at: Annotated[Number, Field(gt=-1e12, lt=1e12)]
    duration_s: Annotated[Number, Field(gt=0, lt=1e12)]
    peer: Address = ""
    port: Annotated[Whole, Field(ge=0, le=65535)] = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an assignment: ``measurements``, or why there are none (``error``).

    ``started`` and ``ended`` are Unix seconds by the agent's clock.
    """

    assignment: str
    task: str
    started: float
    ended: float
    measurements: tuple[Measurement, ...] = ()
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
