"""Which tools there are: what they measure, whom they need, and which options they take.

The broker checks tasks with this before it hands them out, and an agent checks them again: it does
nothing that its own version does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any

from network_provisioner.base.errors import InputError, meant
from network_provisioner.base.units import parse_duration, parse_rate, parse_size

_FOLDER = re.compile(r"/[^\0\n]{0,4095}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_KEY = re.compile(r"[0-9a-f]{16,128}\Z")

Read = Callable[[object, str], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: ``read`` turns what was written (``20 Mb/s``) into a plain number or text and
    raises InputError; ``default`` holds without it (None: as the tool chooses)."""

    read: Read
    default: Any = None


@dataclass(frozen=True, slots=True)
class Tool:
    """``ends``: 2 where an agent at the other end has to take part, 1 where an address is enough,
    0 where there is none. ``load``: whether it fills the path as far as it can; then it needs
    ``least_s`` seconds at least to say anything."""

    name: str
    ends: int
    metrics: tuple[str, ...]
    load: bool
    least_s: float
    options: Mapping[str, Option] = field(default_factory=dict)

    def checked(self, options: Mapping[str, Any], what: str = "options") -> dict[str, Any]:
        """All options as plain numbers and texts, those that were left out with their defaults.

        Raises InputError for a key that is not known or a value that cannot be.
        """
        for key in options:
            if key not in self.options:
                hint = meant(key, self.options, f"expected {self._expected()}")
                raise InputError(f"{what}: unknown option {shown(key)} of {self.name}, {hint}")
        values = {name: option.default for name, option in self.options.items()}
        for key, value in options.items():
            if value is not None and not (value == "" and values[key] == ""):
                values[key] = self.options[key].read(value, f"{what}.{key}")
        return values

    def _expected(self) -> str:
        return f"one of {', '.join(self.options)}" if self.options else "none"


def _whole(least: int, most: int) -> Read:
    def read(value: object, what: str) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise InputError(
            f"{what}: found {shown(value)}, expected a whole number from {least} to {most}"
        )

    return read


def _within(parse: Read, least: float, most: float, unit: str) -> Read:
    def read(value: object, what: str) -> Any:
        number = parse(value, what)
        if not least <= number <= most:
            raise InputError(f"{what}: found {shown(value)}, expected {least} to {most} {unit}")
        return number

    return read


def _rate(value: object, what: str) -> float:
    rate_bps = parse_rate(value, what)
    if rate_bps < 1000:
        raise InputError(f"{what}: found {shown(value)}, expected 1 kb/s or more")
    return rate_bps


def _matching(pattern: re.Pattern[str], expected: str) -> Read:
    def read(value: object, what: str) -> str:
        if isinstance(value, str) and pattern.match(value):
            return value
        raise InputError(f"{what}: found {shown(value)}, expected {expected}")

    return read


_IPERF = {
    "seconds": Option(_whole(1, 3600)),
    "window": Option(_within(parse_size, 4096, 2**30, "bytes")),
}
# At the most 7 Mb/s: these are to load nothing.
_ECHOES = {
    "count": Option(_whole(1, 100_000)),
    "interval": Option(_within(parse_duration, 0.01, 60, "s"), 0.1),
    "length": Option(_within(parse_size, 64, 9_000, "bytes"), 100),
}

# docs/agents.md says what the options mean.
TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "tcp", 2, ("tcp_throughput",), True, 3.0,
            {
                **_IPERF,
                "rate": Option(_rate),
                "streams": Option(_whole(1, 64), 1),
                "omit": Option(_whole(0, 60), 0),
            },
        ),
        Tool(
            "udp", 2, ("udp_throughput", "loss", "jitter"), True, 3.0,
            {
                **_IPERF,
                "rate": Option(_rate, 1e6),
                "length": Option(_within(parse_size, 64, 65_000, "bytes"), 1400),
            },
        ),
        Tool(
            "echo", 2, ("rtt", "loss", "jitter", "one_way_delay"), False, 1.0,
            {**_ECHOES, "key": Option(_matching(_KEY, "16 to 128 hexadecimal digits"), "")},
        ),
        Tool("ping", 1, ("rtt", "loss"), False, 1.0, _ECHOES),
        Tool(
            "trace", 1, ("hops",), False, 1.0,
            {
                "most_hops": Option(_whole(1, 64), 30),
                "attempts": Option(_whole(1, 5), 2),
                "wait": Option(_within(parse_duration, 0.1, 10, "s"), 1.0),
            },
        ),
        Tool(
            "host", 0, ("cpu_use", "memory_use", "io_wait", "free_space"), False, 0.2,
            {"folder": Option(_matching(_FOLDER, "an absolute path"))},
        ),
        Tool(
            "command", 0, ("custom:",), False, 0.2,
            {"command": Option(_matching(_NAME, "the name of a command of the agent"), "")},
        ),
    )
}  # fmt: skip


def tool_of(name: object, what: str = "tool") -> Tool:
    """Raises InputError for a tool that is not known."""
    tool = TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        hint = meant(name, TOOLS, f"expected one of {', '.join(TOOLS)}")
        raise InputError(f"{what}: found {shown(name)}, {hint}")
    return tool


def gives(tool: str, metric: str) -> bool:
    """Whether a tool may report a metric; ``command`` gives any that begins with ``custom:``."""
    known = TOOLS.get(tool)
    return known is not None and (
        metric in known.metrics or (tool == "command" and metric.startswith("custom:"))
    )
