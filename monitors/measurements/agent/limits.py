"""Whether an agent does what it is told: its own limits, whatever the broker says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from monitors.measurements.agent.settings import Limits
from monitors.measurements.messages import Assignment
from network_provisioner.units import bits, format_rate


def refusal(assignment: Assignment, limits: Limits, able: Mapping[str, str], running: int) -> str:
    """Why this is not done, "" where it is. ``able`` names for each tool why it cannot be used here
    ("" where it can), ``running`` is how many runs there are now."""
    return next(_against(assignment, limits, able, running), "")


def _against(
    assignment: Assignment, limits: Limits, able: Mapping[str, str], running: int
) -> Iterator[str]:
    tool, peer, options = assignment.tool, assignment.peer, assignment.options
    if tool not in limits.tools:
        yield f"this agent does not use {tool}"
    if why := able.get(tool, "it is not known here"):
        yield f"{tool} cannot be used here: {why}"
    if assignment.duration_s > limits.run_s:
        yield f"a run of {assignment.duration_s:g} s is above the agent's {limits.run_s:g} s"
    if peer and limits.peers and not any(ip_address(peer) in network for network in limits.peers):
        yield f"{peer} is not among the agent's peers"
    rate_bps = bits(options["length"]) / options["interval"] if "interval" in options else 0.0
    if rate_bps > limits.rate_bps:
        yield f"{format_rate(rate_bps)} is above the agent's {format_rate(limits.rate_bps)}"
    first, last = limits.ports
    if assignment.role == "server" and not first <= assignment.port <= last:
        yield f"port {assignment.port} is not among the agent's, {first} to {last}"
    if running >= limits.at_once:
        yield f"{running} runs at once are the agent's limit"
