"""Any program as a metric. Which ones there are stands in the agent's own configuration: a broker
names them, and never sends one."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitors.measurements.probes import programs
from monitors.measurements.probes.probe import ProbeError, ProbeRequest, Reading
from network_provisioner.base.errors import printable

_MOST_BYTES = 64 * 1024
_MOST_DETAILS = 4096  # bytes of them, as JSON


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments; what it reports is in ``unit``, where it says no other."""

    name: str
    argv: tuple[str, ...]
    unit: str = "1"
    timeout_s: float = 10.0


def read(output: bytes, command: Command) -> Reading:
    """What a program said: a number, or ``{"value": …, "unit": …, "details": {…}}``.

    Raises ProbeError.
    """
    text = output.decode(errors="replace").strip()
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    value, unit, details = said, command.unit, {}
    if isinstance(said, dict):
        value, unit = said.get("value"), said.get("unit", unit)
        details = said.get("details", {})
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise ProbeError(
            f"{command.name} said {printable(text)[:80]!r}, expected a number or JSON with 'value'"
        )
    if not isinstance(unit, str) or not isinstance(details, dict) or len(unit) > 40:
        raise ProbeError(f"{command.name}: expected a short text as 'unit', an object as 'details'")
    if len(json.dumps(details)) > _MOST_DETAILS:
        raise ProbeError(f"{command.name}: found details above {_MOST_DETAILS} bytes")
    return Reading(f"custom:{command.name}", float(value), unit, details)


def measure(order: ProbeRequest, commands: Mapping[str, Command], subject: str) -> list[Reading]:
    """Run the command that the order names. It finds what is measured in ADON_SUBJECT and, where
    there is one, the other end's address in ADON_PEER. Raises ProbeError."""
    command = commands.get(order.options["command"])
    if command is None:
        raise ProbeError(f"there is no command {order.options['command']!r} here")
    own = {name: value for name, value in os.environ.items() if name != "ADON_TOKEN"}
    env = {**own, "ADON_SUBJECT": subject, "ADON_PEER": order.peer}
    until = min(order.end, time.monotonic() + command.timeout_s)
    ended = programs.run(command.argv, until, order.halt, env, _MOST_BYTES)
    if not ended.in_time or ended.code != 0:
        raise ProbeError(ended.how(command.name))
    return [read(ended.out, command)]


def _finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
