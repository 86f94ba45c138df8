"""DAGs into the pool and out of it: submit, follow to the end, remove.

HTCondor's own tools do the work, run by a user who may submit: a :class:`PoolClient` is handed in,
since clients of a pool can need another user or environment than this process has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from monitors.workflows.logs.events import EventTail, JobEvent, Kind
from network_provisioner.base.errors import AdonError, InputError

# DAGMan passes CONDOR_CONFIG, PATH, HOME, USER, LANG, TZ, PYTHONPATH and PEGASUS_* on to PRE and
# POST scripts by itself.
_PASSED_ON = ("ADON_*",)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?\Z")
# What a DAG leaves beside itself. Its lock would make a new DAGMan recover the old run from logs
# whose job ids mean nothing in a pool that was made anew.
_LEFT = (".lock", ".nodes.log", ".dagman.log", ".dagman.out", ".lib.out", ".lib.err")
_POLL_S = 0.2
_ENDS = {Kind.TERMINATED: "ended", Kind.ABORTED: "removed", Kind.HELD: "held"}


class PoolClient(Protocol):
    """Runs a client of the pool to its end and returns what it wrote; raises AdonError."""

    def __call__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> str:
        """``env`` is added to the environment of clients."""
        ...


@dataclass(frozen=True, slots=True)
class DagEnd:
    """How a DAG ended. ``exit_code`` is DAGMan's, None if it was removed or held."""

    state: str  # success | failed | removed | held
    exit_code: int | None = None
    reason: str = ""


def submit_command(
    dag_name: str, passed_on: Sequence[str] = (), *, force: bool = False, batch_name: str = ""
) -> list[str]:
    """``condor_submit_dag`` for a DAG in the current directory.

    :param passed_on: environment variables that PRE and POST scripts see, ``PREFIX_*`` allowed.
    :raises InputError: for what is no variable's name.
    """
    for name in passed_on:
        if not _NAME.match(name):
            raise InputError(
                f"environment of a DAG: found {name!r}, expected a variable's name or PREFIX_*"
            )
    variables = ",".join(dict.fromkeys((*_PASSED_ON, *passed_on)))
    batch = ["-batch-name", batch_name] if batch_name else []
    return [
        "condor_submit_dag",
        "-terse",
        "-notification",
        "never",
        "-include_env",
        variables,
        *batch,
        *(["-force"] if force else []),
        dag_name,
    ]


def parse_cluster(text: str) -> int:
    """The cluster id out of ``condor_submit_dag -terse``. Raises AdonError."""
    match = re.search(r"^\s*(\d+)\.\d+", text, re.MULTILINE)
    if match is None:
        raise AdonError(f"condor_submit_dag: found {text.strip()!r}, expected a job id")
    return int(match.group(1))


def submit_dag(
    dag_file: Path,
    run: PoolClient,
    *,
    env: Mapping[str, str] | None = None,
    force: bool = False,
    batch_name: str = "",
) -> int:
    """Submit a DAG from its own directory, as Pegasus does, and return its cluster id.

    :param env: variables that PRE and POST scripts (and DAGMan) shall have, besides ``ADON_*``,
        ``PEGASUS_*``, HOME and PATH of the runner's environment.
    :param force: start afresh, without what an earlier submission of the same DAG left.
    :raises InputError: when there is no such file, or for a value that HTCondor would drop.
    :raises AdonError: when HTCondor refuses it.
    """
    if not dag_file.is_file():
        raise InputError(f"{dag_file}: found no such file, expected a DAG")
    given = dict(env or {})
    for name, value in given.items():
        # HTCondor drops such a variable from a DAG's environment without a word.
        if ";" in value or "\n" in value:
            raise InputError(f"environment of a DAG: {name}: found {value!r}, expected no ; in it")
    if force:
        for ending in _LEFT:
            dag_file.with_name(dag_file.name + ending).unlink(missing_ok=True)
    command = submit_command(dag_file.name, tuple(given), force=force, batch_name=batch_name)
    return parse_cluster(run(command, env=given, cwd=dag_file.parent))


def remove(cluster: int, run: PoolClient) -> None:
    """Remove a DAG and the jobs it submitted. Raises AdonError."""
    run(["condor_rm", str(cluster)])


class DagLog:
    """Follows ``<dag>.dagman.log`` until the DAG of one cluster ended."""

    def __init__(self, dag_file: Path, cluster: int) -> None:
        self._log = EventTail(dag_file.with_name(dag_file.name + ".dagman.log"), frozenset(_ENDS))
        self._cluster = cluster

    def poll(self) -> DagEnd | None:
        """How it ended, None while it has not; returns at once. Raises AdonError."""
        ends = (_ending(event) for event in self._log.read() if event.cluster == self._cluster)
        return next(ends, None)


def _ending(event: JobEvent) -> DagEnd:
    """What the last event of the DAG's own job means."""
    if event.kind is not Kind.TERMINATED:
        return DagEnd(_ENDS[event.kind], None, event.reason)
    if event.returned is None or event.returned < 0:
        return DagEnd("failed", None, f"DAGMan was killed by signal {-(event.returned or 0)}")
    return DagEnd("failed" if event.returned else "success", event.returned)


def wait(dag_file: Path, cluster: int, timeout_s: float) -> DagEnd:
    """Wait for the end of a submitted DAG. Raises AdonError when ``timeout_s`` is over."""
    log = DagLog(dag_file, cluster)
    deadline = time.monotonic() + timeout_s
    while (end := log.poll()) is None:
        if time.monotonic() > deadline:
            raise AdonError(f"{dag_file}: no end of cluster {cluster} within {timeout_s:g} s")
        time.sleep(_POLL_S)
    return end
