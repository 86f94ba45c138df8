"""Section ``monitoring`` of adon.yml."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from adon.config.parts import Duration, Section


class AgentConfig(Section):
    """An agent that the broker knows. Its token stands in ``security.tokens`` under the same name,
    with the role ``agent``.

    ``name``     the site, or ``SITE/HOST`` where a site has several
    ``address``  where the other agents reach it
    ``ports``    first and last port that its servers may listen on
    """

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:/-]+$")]
    address: str
    ports: tuple[int, int] = (5201, 5210)


class MonitoringConfig(Section):
    """What is measured, by whom, and who is told. See docs/measuring.md.

    ``agents``       who measures
    ``tasks``        what, by name (:mod:`monitors.measurements.task_data`)
    ``agreement``    how much load measurements may put on links and domains
    ``access``       who may start what between which sites, and see which results
    ``anomalies``    what is watched how closely (:mod:`monitors.alerts.anomalies.settings`)
    ``notices``      who is told of what, and how (:mod:`monitors.alerts.notices.targets`)
    ``stuck_after``  a workflow in which nothing changes for so long is stuck
    ``retention``    how long measurements are kept whole, and how long as roll-ups
    ``workflows``    whose workflows the broker itself follows: ``user``, ``all``, or directories
    ``perfsonar``    esmond-style archives that are read
                     (:mod:`monitors.measurements.perfsonar.settings`)
    """

    agents: list[AgentConfig] = Field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    agreement: dict[str, Any] = Field(default_factory=dict)
    access: list[dict[str, Any]] = Field(default_factory=list)
    anomalies: dict[str, Any] = Field(default_factory=dict)
    notices: list[dict[str, Any]] = Field(default_factory=list)
    stuck_after: Duration = 1800.0
    retention: dict[str, Any] = Field(default_factory=dict)
    workflows: list[str] = Field(default_factory=list)
    perfsonar: list[dict[str, Any]] = Field(default_factory=list)
