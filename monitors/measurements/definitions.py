"""A measurement task as people write it (docs/measuring.md), checked against what tools and agents
can do. When it is made is the schedule's business (:mod:`monitors.measurements.task_data`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any

from monitors.measurements.probes.tools import Tool, tool_of
from network_provisioner.base.errors import InputError
from network_provisioner.base.suggestions import meant
from network_provisioner.topology.graph import Topology

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}\Z")


@dataclass(frozen=True, slots=True)
class Member:
    """An agent that the broker knows: its ``address`` for other agents, and the first and last
    port that its servers may listen on."""

    name: str
    address: str
    ports: tuple[int, int] = (5201, 5210)

    @property
    def site(self) -> str:
        """Its site: what stands before the ``/`` of its name."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Definition:
    """What is measured: ``src`` is the agent that begins, ``dst`` the other end, "" where there is
    none; ``address`` is where ``dst`` is reached. ``options`` are all of the tool's, as plain
    values."""

    name: str
    tool: Tool
    src: str
    dst: str = ""
    address: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """Of its measurements."""
        return f"{self.src}>{self.dst}" if self.dst else self.src

    @property
    def agents(self) -> tuple[str, ...]:
        """Who takes part in it: where there are two, the client first."""
        return (self.src, self.dst) if self.tool.ends == 2 else (self.src,)

    @property
    def metrics(self) -> tuple[str, ...]:
        """What may come of it; of a command, by the command's name."""
        if self.tool.name == "command":
            return (f"custom:{self.options['command']}",)
        return self.tool.metrics


def checked_name(name: str, what: str = "name") -> str:
    """The name of a task. Raises InputError: it is part of ids and addresses."""
    if not _NAME.match(name):
        raise InputError(
            f"{what}: found {shown(name)}, expected up to 100 letters, digits and any of . _ : -"
        )
    return name


def definition_of(
    name: str, body: Mapping[str, Any], members: Mapping[str, Member], topology: Topology,
    where: str = "",
) -> Definition:  # fmt: skip
    """What ``body`` (``tool``, ``from``, ``to``, ``options``) says is measured; ``where`` stands in
    front of what it is called in errors.

    Raises InputError for a tool, an end or an option that there is not.
    """
    checked_name(name, f"{where}{name}" if where else "name of a task")
    at = f"{where}{name}"
    tool = tool_of(body.get("tool"), f"{at}.tool")
    src = _end(body.get("from"), f"{at}.from", members)
    dst, address = "", ""
    if tool.ends:
        if body.get("to") is None:
            raise InputError(f"{at}: found no 'to', expected the end that {tool.name} measures to")
        if tool.ends == 2:
            dst = _end(body["to"], f"{at}.to", members)
            address = members[dst].address
        else:
            dst, address = _target(body["to"], f"{at}.to", members, topology)
        if dst == src:
            raise InputError(f"{at}: found {src!r} at both ends, expected two")
    elif body.get("to") is not None:
        raise InputError(f"{at}.to: found {shown(body['to'])}, but {tool.name} has one end alone")
    given = body.get("options")
    if given is not None and not isinstance(given, dict):
        raise InputError(f"{at}.options: found {shown(given)}, expected a mapping")
    options = tool.checked({k: v for k, v in (given or {}).items() if k != "key"}, f"{at}.options")
    if tool.name == "command" and not options["command"]:
        raise InputError(f"{at}.options.command: found none, expected the name of a command")
    return Definition(name, tool, src, dst, address, options)


def _end(found: object, what: str, members: Mapping[str, Member]) -> str:
    if isinstance(found, str) and found in members:
        return found
    raise InputError(f"{what}: found {shown(found)}, {_near(found, members)}")


def _target(
    found: object, what: str, members: Mapping[str, Member], topology: Topology
) -> tuple[str, str]:
    """The name and the address of an end that needs no agent: an agent's, or a site's own."""
    if isinstance(found, str) and found in members:
        return found, members[found].address
    node = topology.nodes.get(found) if isinstance(found, str) else None
    address = (node.dtn or node.address) if node is not None and node.kind == "site" else ""
    if not address:
        sites = [
            n.name for n in topology.nodes.values() if n.kind == "site" and (n.dtn or n.address)
        ]
        raise InputError(f"{what}: found {shown(found)}, {_near(found, [*members, *sites])}")
    return str(found), address


def _near(found: object, known: Iterable[str]) -> str:
    names = sorted(set(known))
    return meant(found, names, f"expected one of {', '.join(names) or 'monitoring.agents'}")
