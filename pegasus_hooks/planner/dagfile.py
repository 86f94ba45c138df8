"""The .dag, written by HTCondor's own DAG library in the shape Pegasus gives it.

Four things of ``htcondor2.dags`` do not fit a submit directory of Pegasus and are replaced here:
it numbers every node (``name:0``); it writes absolute paths on JOB lines (hooks and monitors read
the folder there, and the directory is renamed into place); it writes the limit of a category as
``CATEGORY name 4`` where DAGMan reads ``MAXJOBS name 4``; its edges are sets, copied whole for
every node, so that two plans of one workflow differ and 1,000 jobs take 15 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from htcondor2.dags import DAG, NodeLayer, NodeNameFormatter, Script
from htcondor2.dags.writer import DAGWriter

from pegasus_hooks.planner.model import PlannedJob
from pegasus_hooks.planner.submitfile import category_of, priority_of
from pegasus_hooks.prepost.prejob import DEFER_STATUS

JOBSTATE_LOG = "jobstate.log"


class _PlainNames(NodeNameFormatter):  # type: ignore[misc]  # the library has no types
    """Every layer is one node with the layer's own name."""

    def generate(self, layer_name: str, node_index: int) -> str:
        return layer_name

    def parse(self, node_name: str) -> tuple[str, int]:
        return node_name, 0


class _PegasusShape(DAGWriter):  # type: ignore[misc]
    """The library's writer with Pegasus's JOB and MAXJOBS lines."""

    def __init__(self, dag: DAG, layers: list[NodeLayer], jobs: list[PlannedJob]) -> None:
        super().__init__(dag, node_name_formatter=_PlainNames())
        self._layers = layers
        self._jobs = jobs
        self._folders = {job.name: job.folder for job in jobs}

    def yield_dag_file_lines(self) -> Iterator[str]:
        yield from self.yield_dag_meta_lines()
        for layer in self._layers:
            yield ""
            yield from self.yield_node_lines(layer)
        yield ""
        for job in self._jobs:
            for parent in sorted(job.parents):
                yield f"PARENT {parent} CHILD {job.name}"

    def yield_dag_meta_lines(self) -> Iterator[str]:
        for line in super().yield_dag_meta_lines():
            yield line.replace("CATEGORY", "MAXJOBS", 1) if line.startswith("CATEGORY ") else line

    def yield_layer_lines(self, layer: NodeLayer) -> Iterator[str]:
        for line in super().yield_layer_lines(layer):
            file = f"{self._folders[layer.name]}/{layer.name}.sub"
            yield f"JOB {layer.name} {file}" if line.startswith("JOB ") else line


def write_dag(
    directory: Path,
    file_name: str,
    jobs: Iterable[PlannedJob],
    scripts: Mapping[str, tuple[list[str] | None, list[str] | None]],
    retries: int,
    max_jobs: Mapping[str, int],
    config: Mapping[str, str],
    defer_s: int | None = None,
) -> None:
    """Write ``file_name`` into ``directory``.

    ``scripts`` gives PRE and POST of a job as words, None for none. DAGMan runs a PRE that leaves
    with DEFER_STATUS again after ``defer_s`` seconds; None: such a PRE has failed.
    ``config`` holds DAGMan's own settings for this workflow.
    """
    dag = DAG(
        max_jobs_by_category=dict(max_jobs),
        dagman_config=dict(config) or None,
        jobstate_log=Path(JOBSTATE_LOG),
    )
    planned = list(jobs)
    layers: list[NodeLayer] = []
    for job in planned:
        pre, post = scripts.get(job.name, (None, None))
        own_retries = job.profiles.get("dagman", {}).get("retry", "")
        layer = dag.layer(
            name=job.name,
            submit_description=Path(f"{job.name}.sub"),
            vars=[{"My.DAGNodeRetry": "$(RETRY)"}],
            retries=int(own_retries) if own_retries.isdecimal() else retries,
            pre=_script(pre, defer_s),
            post=_script(post),
            priority=priority_of(job),
            category=category_of(job),
        )
        layers.append(layer)
    _PegasusShape(dag, layers, planned).write(directory, dag_file_name=file_name)


def _script(words: list[str] | None, defer_s: int | None = None) -> Script | None:
    if not words:
        return None
    if defer_s is None:
        return Script(words[0], words[1:])
    return Script(words[0], words[1:], retry=True, retry_status=DEFER_STATUS, retry_delay=defer_s)
