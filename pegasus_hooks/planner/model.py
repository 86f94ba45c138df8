"""The words of the planner: what goes in, the jobs of an executable workflow, what comes out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from monitors.workflows.planned.transferlist import Entry
from network_provisioner.base import account
from site_selector.replicas.order import Paths

MAX_JOBS = {"cleanup": 4, "registration": 1, "stageout": 10, "stagein": 10}


class PlannedKind(StrEnum):
    """What a job of the executable workflow is for."""

    CREATE_DIR = "create_dir"
    STAGE_IN = "stage_in"
    STAGE_INTER = "stage_inter"
    COMPUTE = "compute"
    STAGE_OUT = "stage_out"
    CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Options:
    """How to plan.

    ``python`` runs the hooks and, where a site's ``env: PEGASUS_PYTHON`` names no other, the
    jobs. ``wf_uuid`` and ``planned_at`` (Unix seconds) are made up where they are None; with both
    given, planning is deterministic.

    ``defer_s`` lets PRE leave a transfer that waits for its path to DAGMan, which runs PRE again
    after this many seconds; None has PRE wait itself. ``check`` is POST of transfer
    jobs where there are no hooks; empty for none.

    By ``paths`` the replica of an input that arrives soonest is tried first.

    ``stage_in_clusters`` and ``stage_out_clusters`` are the stage jobs per level and site; None is
    Pegasus's default, one for every ten jobs of the level.
    """

    user: str = field(default_factory=account.user_name)
    python: str = sys.executable
    stage_in_clusters: int | None = None
    stage_out_clusters: int | None = None
    # One thread already hands all files of a folder to one globus-url-copy with parallel streams;
    # PRE has more of them where the files are small.
    transfer_threads: int = 1
    # After a failed attempt pegasus-transfer sleeps minutes on a path that others may need; DAGMan
    # tries again at once, and its PRE asks for a path anew.
    transfer_attempts: int = 1
    retries: int = 2
    defer_s: int | None = None
    check: str = ""
    cleanup: bool = True
    max_jobs: Mapping[str, int] = field(default_factory=lambda: dict(MAX_JOBS))
    dagman_config: Mapping[str, str] = field(default_factory=dict)
    paths: Paths = field(default_factory=dict)
    wf_uuid: str | None = None
    planned_at: float | None = None


@dataclass(frozen=True, slots=True)
class ComputeTask:
    """What a compute job runs: the input of ``jobrun.py``. Paths are in the site's run directory
    unless absolute."""

    id: str
    transformation: str
    directory: str
    executable: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    staged_executable: bool = False


@dataclass(slots=True)
class ExecutableJob:
    """One job of the executable workflow.

    ``site`` is where it runs. ``entries`` is the transfer list of every kind but compute, which
    has a ``task``. ``profiles`` are the condor, env and pegasus profiles that hold for it.
    """

    name: str
    kind: PlannedKind
    site: str
    level: int
    parents: set[str] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)
    task: ComputeTask | None = None
    profiles: dict[str, dict[str, str]] = field(default_factory=dict)
    # Sites whose run directory the job reads or writes.
    touches: set[str] = field(default_factory=set)
    folder: str = "00/00"

    @property
    def transfers(self) -> bool:
        """Whether Pegasus would call it a transfer job, which the pre-job hook is for."""
        return self.kind in (PlannedKind.STAGE_IN, PlannedKind.STAGE_INTER, PlannedKind.STAGE_OUT)


@dataclass(frozen=True, slots=True)
class PlannedWorkflow:
    """A submit directory that is ready to run.

    ``planner`` is ``embedded`` or ``pegasus-plan``; ``jobs`` are those of the executable workflow
    by name (empty for a real Pegasus plan: read its .dag).
    """

    name: str
    submit_dir: Path
    dag: Path
    wf_uuid: str
    planner: str
    jobs: Mapping[str, ExecutableJob] = field(default_factory=dict)
    output: str = ""
