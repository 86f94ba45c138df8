"""The planned DAG of a submit directory: what runs where after what, and what it moves.

The .dag gives the edges and priorities, the submit files the sites, and the transfer lists (of
stage jobs, and in PegasusLite scripts) what moves between which sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from monitors.workflows.planned import job_files
from monitors.workflows.planned.moves import moves_of
from monitors.workflows.planned.submit_dir import JobKind, PlannedJob, SubmitDir
from monitors.workflows.planned.transferlist import SitePair
from network_provisioner.base.errors import InputError


@dataclass(frozen=True, slots=True)
class Moving:
    """Files from one site to another: ``declared_bytes`` of those whose size the plan knows, and
    the names of the others."""

    src: str
    dst: str
    declared_bytes: int
    undeclared: tuple[str, ...] = ()

    @property
    def pair(self) -> tuple[str, str]:
        """From where to where."""
        return self.src, self.dst

    def size_bytes(self, known: Mapping[str, float]) -> float | None:
        """All of them, None where the size of any is unknown."""
        if any(lfn not in known for lfn in self.undeclared):
            return None
        return self.declared_bytes + sum(known[lfn] for lfn in self.undeclared)


@dataclass(frozen=True, slots=True)
class Node:
    """One job. ``first`` moves as it begins; ``priority`` is DAGMan's, the largest goes first;
    ``retries`` is how often DAGMan runs it again where it fails; ``tasks`` are those of a clustered
    job."""

    name: str
    kind: JobKind = JobKind.COMPUTE
    site: str = ""
    transformation: str = ""
    task: str = ""
    priority: int = 0
    retries: int = 0
    parents: tuple[str, ...] = ()
    first: tuple[Moving, ...] = ()
    tasks: tuple[job_files.PlannedTask, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """The transformations that it runs, one after the other: its own, or its tasks'."""
        return tuple(task.transformation for task in self.tasks) or (self.transformation,)

    @property
    def takes_worker(self) -> bool:
        """Whether it needs a worker of its site; what Pegasus adds runs on the submit host."""
        return self.kind is JobKind.COMPUTE


@dataclass(frozen=True, slots=True)
class PlannedDag:
    """A planned workflow; ``nodes`` has parents before children."""

    workflow: str
    submit_dir: Path
    nodes: Mapping[str, Node]


def read_dag(submit_dir: Path | SubmitDir, *, moves: bool = True) -> PlannedDag:
    """The DAG in a submit directory; without ``moves``, which takes less time, no job's ``first``.

    Raises InputError where it is none, cannot be read, or its jobs wait for each other in a circle.
    """
    plan = submit_dir if isinstance(submit_dir, SubmitDir) else SubmitDir(submit_dir)
    nodes = {}
    for name, known in plan.nodes.items():
        job = plan.job(name)
        nodes[name] = Node(
            name,
            job.kind,
            job.site,
            job.transformation,
            job.task,
            known.priority,
            known.retries,
            tuple(dict.fromkeys(known.parents)),
            _moves(plan, job) if moves else (),
            job.tasks,
        )
    return PlannedDag(plan.workflow, plan.path, in_order(nodes, str(plan.dag)))


def in_order(nodes: Mapping[str, Node], where: str = "the DAG") -> dict[str, Node]:
    """The same with parents before children. Raises InputError for circles and unknown parents."""
    for node in nodes.values():
        for parent in node.parents:
            if parent not in nodes:
                raise InputError(f"{where}: job {node.name!r} waits for {parent!r}, which is none")
    try:
        order = TopologicalSorter({n.name: n.parents for n in nodes.values()}).static_order()
        return {name: nodes[name] for name in order}
    except CycleError as error:
        circle = " - ".join(error.args[1])
        raise InputError(f"{where}: found jobs that wait for each other: {circle}") from None


def _moves(plan: SubmitDir, job: PlannedJob) -> tuple[Moving, ...]:
    node = plan.nodes[job.name]
    if node.is_subdag:  # that one's own jobs move what moves
        return ()
    listing, cache = node.file.with_name(f"{job.name}.in"), plan.dag.with_suffix(".cache")
    moves = moves_of(listing, job.name, job.transformation, job.site, cache)
    return tuple(map(_moving, moves.now if moves else ()))


def _moving(pair: SitePair) -> Moving:
    sizes = [t.size_bytes for t in pair.transfers if t.size_bytes is not None]
    return Moving(pair.src, pair.dst, sum(sizes), tuple(t.lfn for t in pair.undeclared))
