"""Measurements of paths that no transfer may have taken yet: packets are held to them meanwhile.

The candidate paths of each pair of sites that was used lately are measured in turn, as tasks like
any other: within the schedule and the agreement. What tells a run's packets from others is the port
of its server; the network is told to lead that over the path from a moment before the run until its
end. A run that could not be held measured something else, and is not believed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from monitors.archive.archive import Archive
from monitors.measurements.agent_registry import RegisteredAgent
from monitors.measurements.runs import Run, RunState
from monitors.measurements.task_data import HELD_BY
from network_provisioner.base.errors import AdonError
from network_provisioner.base.flows import Flow
from network_provisioner.topology.graph import Topology

BY = "(candidate paths)"
"""Who has added these tasks."""
USED_S = 7 * 86_400.0
MOST_PATHS = 3  # of a pair of sites
USUAL: Mapping[str, Any] = {"tool": "echo", "every": "5 min", "for": "3 s"}
LEAD_MS = 2_500  # before a run: switches take some tenths of a second
_MOST_KNOWN = 1000  # runs of which it is known whether they were held
_log = logging.getLogger(__name__)


class PathHolder(Protocol):
    """The network."""

    def pin(self, name: str, nodes: Sequence[str], flow: Flow, until: float) -> None:
        """Lead these packets over this path until Unix second ``until``. Raises AdonError."""
        ...

    def unpin(self, name: str) -> None:
        """Stop it; harmless if it was not pinned. Raises AdonError."""
        ...


def used_pairs(archive: Archive, sites: Collection[str], now: float) -> list[tuple[str, str]]:
    """The pairs of sites between which something was transferred within a week."""
    pairs = []
    for subject in archive.subjects("throughput"):
        src, _, dst = subject.partition(">")
        if src in sites and dst in sites and src != dst:
            latest = archive.query("throughput", subject, until=now, newest=True, limit=1)
            if latest and latest[0].at >= now - USED_S:
                pairs.append((src, dst))
    return pairs


def wanted_tasks(
    pairs: Sequence[tuple[str, str]],
    members: Mapping[str, RegisteredAgent],
    topology: Topology,
    given: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    """By name, the tasks that measure the candidate paths of these pairs, where both sites have an
    agent at the site's own address, and there is more than one path."""
    by_address = {member.address: name for name, member in members.items()}
    tasks: dict[str, dict[str, Any]] = {}
    for src, dst in pairs:
        ends = [by_address.get(topology.nodes[site].address) for site in (src, dst)]
        paths = topology.candidate_paths(src, dst, MOST_PATHS)
        if not all(ends) or len(paths) < 2:
            continue
        for number, path in enumerate(paths, 1):
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{src}-{dst}")[:80]
            body = {"from": ends[0], "to": ends[1], "via": list(path.nodes[1:-1])}
            tasks[f"path:{name}:{number}"] = {**USUAL, **given, **body}
    return tasks


class HeldPaths:
    """Which runs are, or were, held to their paths. Used by one thread, but for :meth:`why_not`."""

    def __init__(self, holder: PathHolder | None) -> None:
        self._holder = holder
        self._until: dict[str, int] = {}
        self._known: dict[str, str] = {}

    def due(self, runs: Iterable[Run], now_ms: int) -> list[Run]:
        """The runs to hold from now on."""
        return [
            run
            for run in runs
            if " via " in run.subject
            and run.state is RunState.PLANNED
            and run.id not in self._known
            and run.at_ms - LEAD_MS <= now_ms < run.end_ms
        ]

    def hold(self, run: Run, nodes: Sequence[str], now_ms: int) -> None:
        """Have a run's packets led over its path. Never raises: see :meth:`why_not`."""
        why = ""
        flow = Flow(HELD_BY[run.tool], None, (run.parts[0].assignment.port,) * 2)
        if self._holder is None:
            why = "there is no network to hold it"
        elif now_ms > run.at_ms:
            why = "it had begun"
        else:
            try:
                self._holder.pin(_name(run.id), nodes, flow, run.end_ms / 1000 + 1)
                self._until[run.id] = run.end_ms
            except AdonError as error:
                why = str(error)
                _log.info("measurement %s is not held to its path: %s", run.id, error)
        self._known[run.id] = why
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def release(self, now_ms: int) -> None:
        """Release those that are over. Raises AdonError."""
        for run_id in [run_id for run_id, end_ms in self._until.items() if end_ms < now_ms]:
            if self._holder is not None:
                self._holder.unpin(_name(run_id))
            del self._until[run_id]

    def why_not(self, run: Run) -> str:
        """Why a run was not held to its path, "" if it was or needs none."""
        return self._known.get(run.id, "nobody knows") if " via " in run.subject else ""


def _name(run_id: str) -> str:
    return f"probe:{run_id}"
