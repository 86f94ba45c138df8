"""After a compute job: the sizes of the files it wrote go into the journal of sizes, where the next
hook finds them. Standard library only: it runs after every job.

Jobs of the embedded planner have no POST that would do so: PRE of a transfer job does it for the
jobs whose files it moves, and the watcher where it reserves in advance.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from monitors.workflows.planned import job_files
from monitors.workflows.planned.foreign_files import end_of
from monitors.workflows.planned.job_files import OUR_RECORD, PlannedFiles

EMBEDDED = "adon"
"""The planner in the braindump of a workflow that the embedded one planned."""
_NOT_COMPUTING = ("create_dir_", "stage_")
_TAIL_BYTES = 1 << 26  # a clustered job has a record of each task


def keep_sizes(files: PlannedFiles) -> None:
    """Put the sizes of what a compute job wrote into the journal.

    Raises InputError for no submit directory of Pegasus, or a job that the DAG does not know,
    OSError if the journal cannot be written.
    """
    output = files.file(".out")
    outputs = last_record(output).get("outputs")
    if outputs is None:
        outputs = _kickstarts_outputs(output)
    if isinstance(outputs, dict):
        lines = [{"lfn": lfn, "bytes": size} for lfn, size in sorted(outputs.items())]
        job_files.append_lines(files.submit_dir / job_files.SIZE_JOURNAL, lines)


def keep_sizes_of_parents(files: PlannedFiles) -> None:
    """The same for the jobs before a transfer job, where the embedded planner planned them. Raises
    as keep_sizes does."""
    if planned_here(files):
        for parent in files.parents:
            if not parent.startswith(_NOT_COMPUTING):
                keep_sizes(PlannedFiles(files.submit_dir, parent))


def planned_here(files: PlannedFiles) -> bool:
    """Whether the embedded planner planned the workflow. Raises InputError."""
    return files.braindump.get("planner") == EMBEDDED


def last_record(output: Path) -> dict[str, Any]:
    """The record that the planner's wrapper printed last into a job's output; empty for none."""
    text = end_of(output, _TAIL_BYTES)
    for line in reversed(text.splitlines()):
        if line.startswith(OUR_RECORD):
            try:
                record = json.loads(line[len(OUR_RECORD) :])
            except (ValueError, RecursionError):  # torn by a kill
                continue
            return record if isinstance(record, dict) else {}
    return {}


def _kickstarts_outputs(output: Path) -> dict[str, int]:
    """The same from what a real Pegasus's kickstart wrote, of all programs of a clustered job."""
    from monitors.workflows.logs import kickstart  # noqa: PLC0415 - PRE of a transfer needs none

    return {
        lfn: size
        for invocation in kickstart.invocations(end_of(output, _TAIL_BYTES))
        for lfn, size in invocation.outputs.items()
    }
