"""The workflows inside a workflow.

A job may stand for a workflow: one that Pegasus plans when its turn comes, or a plain sub-DAG.

    JOB pegasus-plan_sub 00/00/pegasus-plan_sub.sub    universe scheduler, +pegasus_job_class = 10,
                                                       initialdir = …/00/00/./mini_sub,
                                                       arguments = … -Dag mini-0.dag …
    SUBDAG EXTERNAL inner inner.dag DIR there

Pegasus's has a submit directory and a UUID of its own, both made by its PRE script. Where that
plans again (``mini_sub.001``), it is another workflow in the place of the one before. A plain
sub-DAG has no UUID; what it is known by here follows from its parent's and its job's name, so that
every follower finds the same. Seen with Pegasus 6.0 and HTCondor 25.14.1.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from glob import escape
from pathlib import Path

from monitors.workflows.planned.foreign_files import resolved
from monitors.workflows.planned.submit_dir import JobKind, SubmitDir, dag_of, is_planned
from network_provisioner.base.errors import InputError

_NUMBERED = re.compile(r"(.+)\.(\d{3})")
_SHARED = ("user", "submit_hostname")  # what a plain sub-DAG has from its parent


def sub_workflows(parent: SubmitDir, job: str) -> list[SubmitDir]:
    """What a sub-workflow's job runs, with the plans that it ran before, the newest last; none
    where the job is no such job, or nothing is planned yet.

    Raises InputError for a submit directory that cannot be read.
    """
    if parent.job(job).kind is not JobKind.SUBWORKFLOW:
        return []
    values = parent.values(job)
    if values:
        folder = _newest(parent.named_file(job, values.get("initialdir", "")), parent)
        name = dag_of(values.get("arguments", ""))
        dag = folder / name if name else None
        if dag is not None and not dag.is_file() and is_planned(folder):
            dag = SubmitDir(folder).dag  # it may have been renamed
    else:
        folder, dag = parent.nodes[job].folder, parent.nodes[job].file
    if dag is None or not dag.is_file():
        return []
    own = _planned(dag)
    if own is not None and own.workflow != parent.workflow:
        _check_owner(own, parent)
        return [*(plan for plan in _plans_before(own) if plan.owner == parent.owner), own]
    plain = SubmitDir(folder, dag, derived_uuid(parent.workflow, job))
    _check_owner(plain, parent)
    plain.braindump.update(
        {name: parent.braindump[name] for name in _SHARED if name in parent.braindump}
    )
    return [plain]


def _newest(folder: Path, parent: SubmitDir) -> Path:
    """Where Pegasus's link to the newest plan leads; of a directory that was moved, it may lead to
    where that was."""
    real = resolved(folder)
    if not real.is_dir() or not real.is_relative_to(resolved(parent.path)):
        plans = sorted(folder.parent.glob(f"{escape(folder.name)}.[0-9][0-9][0-9]"))
        return resolved(plans[-1]) if plans else real
    return real


def _check_owner(part: SubmitDir, whole: SubmitDir) -> None:
    if part.owner != whole.owner:
        raise InputError(f"{part.path}: found another user's, expected a part of {whole.path}")


def _plans_before(newest: SubmitDir) -> list[SubmitDir]:
    """``mini_sub.000`` and so on, of ``mini_sub.002``."""
    match = _NUMBERED.fullmatch(newest.path.name)
    if match is None:
        return []
    earlier: list[SubmitDir] = []
    for number in range(int(match[2])):
        folder = newest.path.with_name(f"{match[1]}.{number:03d}")
        if is_planned(folder):
            with suppress(InputError):  # nothing but its own history is lost
                earlier.append(SubmitDir(folder))
    return earlier


def derived_uuid(parent: str, job: str) -> str:
    """The UUID by which a sub-DAG is known that has none."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{parent}/{job}"))


def root_of(path: Path) -> Path:
    """The submit directory of the workflow that the one in ``path`` is a part of, itself where it
    is a part of none or that one is not found. Pegasus plans parts into their whole's directory."""
    try:
        dump = SubmitDir(path).braindump
        root = dump.get("root_wf_uuid", "")
        if root in ("", dump.get("wf_uuid")):
            return path
        for above in resolved(path).parents:
            if is_planned(above) and SubmitDir(above).workflow == root:
                return above
    except InputError:
        pass
    return path


def _planned(dag: Path) -> SubmitDir | None:
    """The submit directory that was planned for a DAG, where it has one of its own."""
    folder = resolved(dag.parent)
    if not is_planned(folder):
        return None
    submit_dir = SubmitDir(folder)
    return submit_dir if submit_dir.dag.name == dag.name else None
