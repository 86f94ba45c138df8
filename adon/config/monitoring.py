"""Section ``monitoring`` of adon.yml as values, and whether all of it can be used."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Any

from adon.config.sections import MonitoringConfig
from monitors.alerts.anomalies.settings import watch_from_dict
from monitors.alerts.notices.targets import check_targets
from monitors.archive.retention.horizons import retention_from_dict
from monitors.measurements.agent_registry import RegisteredAgent
from monitors.measurements.perfsonar.settings import settings_from_list
from monitors.measurements.registry import TaskRegistry
from monitors.measurements.task_data import agreement_from_dict
from monitors.rules import rules_from_list
from monitors.workflows.service import check_workflows
from network_provisioner.base.errors import InputError
from network_provisioner.base.fields import known_keys
from network_provisioner.topology.graph import Topology


def check_monitoring(settings: MonitoringConfig, topology: Topology) -> None:
    """Whether the section can be used, before anything is opened. Raises InputError."""
    retention_from_dict(settings.retention)
    try:
        check_workflows(settings.workflows)
    except InputError as error:
        raise InputError(f"monitoring.{error}") from None
    rules_from_list(settings.access, topology)
    registry_of(settings, topology)
    candidate_paths_of(settings)
    watch_from_dict(settings.anomalies)
    check_targets(settings.notices)
    settings_from_list(settings.perfsonar, topology, Path())


def agents_of(settings: MonitoringConfig) -> dict[str, RegisteredAgent]:
    """The agents, by name. Raises InputError for one that is there twice, an invalid address,
    and invalid ports."""
    agents: dict[str, RegisteredAgent] = {}
    for number, agent in enumerate(settings.agents):
        where = f"monitoring.agents.{number}"
        if agent.name in agents:
            raise InputError(f"{where}: found {agent.name!r} twice, expected each agent once")
        try:
            ip_address(agent.address)
        except ValueError:
            raise InputError(
                f"{where}.address: found {agent.address!r:.100}, expected an IP address"
            ) from None
        first, last = agent.ports
        if not 0 < first <= last < 65536:
            raise InputError(
                f"{where}.ports: found {first} to {last}, expected the first and the last of some "
                "from 1 to 65535"
            )
        agents[agent.name] = RegisteredAgent(agent.name, agent.address, (first, last))
    return agents


def registry_of(settings: MonitoringConfig, topology: Topology) -> TaskRegistry:
    """The agents and their tasks. Raises InputError."""
    agents = agents_of(settings)
    for agent in agents.values():
        if agent.site not in topology.sites:
            raise InputError(
                f"monitoring.agents: {agent.name!r} is at {agent.site!r}, expected a site of the "
                f"topology: {', '.join(topology.sites)}"
            )
    agreement = agreement_from_dict(settings.agreement, topology)
    return TaskRegistry(agents, topology, agreement, settings.tasks)


def candidate_paths_of(settings: MonitoringConfig) -> dict[str, Any] | None:
    """How candidate paths are measured, None for not at all. Raises InputError."""
    if not settings.agents or settings.paths is False:
        return None
    section = settings.paths if isinstance(settings.paths, dict) else {}
    keys = ("tool", "every", "for", "within", "load", "options")
    known_keys(section, keys, "monitoring.paths")
    return section
