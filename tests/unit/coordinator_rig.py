"""A coordinator with a clock that stands still, and agents that do as they are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from broker_rig import Clock, demo_network
from fastapi import APIRouter

from monitors.api import agents as agents_api
from monitors.archive.archive import Archive
from monitors.archive.outbox import Outbox
from monitors.measurements.agent_registry import AgentRegistry, AgentReport, RegisteredAgent
from monitors.measurements.coordinator import Coordinator
from monitors.measurements.probes.disks import DiskPeriods
from monitors.measurements.registry import TaskRegistry
from monitors.measurements.run_store import MeasuringStore
from monitors.measurements.runs import Run, RunState
from monitors.measurements.task_data import agreement_from_dict
from monitors.rules import Rules
from network_provisioner.access import ANYBODY
from network_provisioner.broker import Broker

UNITS = {"tcp_throughput": "bit/s", "rtt": "s", "loss": "1", "cpu_use": "1", "memory_use": "1"}
TCP = {"tool": "tcp", "from": "mu", "to": "tacc", "every": "60 s", "for": "10 s"}
ECHO = {"tool": "echo", "from": "tacc", "to": "mu", "every": "30 s", "for": "3 s"}
HOST = {"tool": "host", "from": "iplant", "every": "10 s", "for": "1 s"}
TASKS = {"tcp": TCP, "echo": ECHO, "host": HOST}
MEMBERS = {
    name: RegisteredAgent(name, f"192.0.2.{number}", (5201, 5204))
    for number, name in enumerate(("mu", "tacc", "iplant", "local"), 1)
}


class CoordinatorRig:
    """A coordinator in a folder with its archive; :meth:`restarted` is another process."""

    def __init__(
        self,
        folder: Path,
        tasks: Mapping[str, Mapping[str, Any]] = TASKS,
        clock: Clock | None = None,
        agreement: Mapping[str, Any] | None = None,
        rules: Rules | None = None,
        members: Mapping[str, RegisteredAgent] = MEMBERS,
        **more: Any,
    ) -> None:
        self.folder, self.tasks, self.clock = folder, tasks, clock or Clock()
        self.network = demo_network()
        self.before: set[str] = set()  # runs that had ended when the clock was set back
        self.agreement = agreement_from_dict(agreement or {}, self.network)
        self.archive = Archive(folder / "archive.sqlite")
        self.store = MeasuringStore(folder / "measuring.sqlite")
        self.agent_registry = AgentRegistry(members.values())
        self.registry = TaskRegistry(members, self.network, self.agreement, tasks)
        self.coordinator = Coordinator(
            self.agent_registry,
            self.registry,
            self.store,
            self.archive,
            rules or Rules(),
            self.clock,
            **more,
        )

    def restarted(self, **more: Any) -> CoordinatorRig:
        """Another process, after this one was killed."""
        self.close()
        return CoordinatorRig(self.folder, **{"tasks": self.tasks, "clock": self.clock, **more})

    def close(self) -> None:
        self.store.close()
        self.archive.close()

    def agents_router(self, broker: Broker) -> APIRouter:
        """The agents' routes; what they report goes to the broker."""
        disks = DiskPeriods(broker.disks, Outbox(self.archive))
        return agents_api.router(
            self.coordinator,
            self.clock,
            broker.report_connections,
            disks.take_in,
            broker.report_sockets,
        )

    def let_pass(self, seconds: float, step: float = 1.0) -> None:
        """Time, with a look at it every ``step`` seconds."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + step)
            self.coordinator.sweep()

    def ask(self, agent: str) -> list[dict[str, Any]]:
        """What the agent is told to do."""
        self.coordinator.heard(agent, AgentReport(0.0, 0.001, 0, 0, "1"))
        return self.coordinator.assignments(agent)[2]

    def all_present(self) -> None:
        for name in self.agent_registry.members:
            self.ask(name)

    def work(self, *agents: str) -> list[str]:
        """These agents ask, and report on what is over; returns what was accepted."""
        accepted = []
        for agent in agents:
            self.ask(agent)
            done = [
                result_of(run, agent)
                for run in self.runs()
                if run.end_ms / 1000 <= self.clock.now
                and run.state is not RunState.DROPPED
                and any(p.agent == agent and p.told and not p.reported for p in run.parts)
            ]
            took, refused = self.coordinator.results(agent, done)
            assert not refused
            accepted += took
        return accepted

    def runs(self) -> list[Run]:
        """All runs that the store has."""
        return self.store.runs(0, 2**60, None, 100_000)

    def measured(self, metric: str) -> list[str]:
        """Ids of what was recorded."""
        return [m.id for m in self.archive.query(metric)]


def result_of(run: Run, agent: str, **more: Any) -> dict[str, Any]:
    """What an agent reports that did its part."""
    part = run.part_of(agent)
    assert part is not None
    metrics = {"tcp": ["tcp_throughput"], "echo": ["rtt", "loss"], "host": ["cpu_use"]}[run.tool]
    measurements = [
        {
            "id": f"{metric}:{run.id}",
            "metric": metric,
            "subject": run.subject,
            "value": 0.5,
            "unit": UNITS[metric],
            "at": run.end_ms / 1000,
            "source": f"agent:{agent}",
            "workflow": "",
            "details": {},
        }
        for metric in (metrics if part.measures else [])
    ]
    return {
        "assignment": run.id,
        "task": run.task,
        "started": run.at_ms / 1000,
        "ended": run.end_ms / 1000,
        "error": "",
        "measurements": measurements,
        **more,
    }


def check(rig: CoordinatorRig) -> None:
    """Whatever happened: no two runs disturb each other, and none is there twice."""
    runs = [r for r in rig.runs() if r.state is not RunState.DROPPED and r.id not in rig.before]
    by_release: set[tuple[str, int]] = set()
    for run in runs:
        if not run.demanded:
            assert (run.task, run.release_ms) not in by_release, run
            by_release.add((run.task, run.release_ms))
    conflicts(runs)
    within_agreement(rig, runs)


def conflicts(runs: Sequence[Run]) -> None:
    ordered = sorted(runs, key=lambda run: run.at_ms)
    for number, run in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if other.at_ms >= run.end_ms:
                break
            assert not run.hosts & other.hosts, (run, other)
            assert not run.links & other.links, (run, other)
            ours = {(p.agent, p.assignment.port) for p in run.parts if p.assignment.port}
            theirs = {(p.agent, p.assignment.port) for p in other.parts if p.assignment.port}
            assert not ours & theirs, (run, other)


def within_agreement(rig: CoordinatorRig, runs: Sequence[Run]) -> None:
    agreement = rig.agreement
    for name, links in agreement.domains.items():
        inside = [run for run in runs if run.links & links]
        for run in inside:
            now = [o for o in inside if o.at_ms <= run.at_ms < o.end_ms]
            assert len(now) <= agreement.at_once.get(name, len(now))
            load = sum(o.load_bps for o in now)
            assert load <= agreement.domain_bps.get(name, load) * (1 + 1e-6)


__all__ = ["ANYBODY", "Clock", "CoordinatorRig", "check", "result_of"]
