"""What a workflow's submit directory says about the workflow and its jobs.

The directory has Pegasus's shape whoever planned it: ``braindump.yml``, ``<name>.dag``, and a
``.sub`` file per job that names the job's site and transformation. A directory with nothing but a
DAG is followed as well; its jobs then have no site.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from monitors.logs.dag_files import DAG, is_file, only_dag, place, text_of
from monitors.logs.submit_file import expanded, submit_values, variables
from network_provisioner.errors import InputError


class JobKind(StrEnum):
    """What a job of the executable workflow is for."""

    COMPUTE = "compute"
    STAGE_IN = "stage_in"
    STAGE_INTER = "stage_inter"
    STAGE_OUT = "stage_out"
    CREATE_DIR = "create_dir"
    CLEANUP = "cleanup"
    REGISTER = "register"
    SUBWORKFLOW = "subworkflow"
    OTHER = "other"


TRANSFERS = frozenset({JobKind.STAGE_IN, JobKind.STAGE_INTER, JobKind.STAGE_OUT})

# `+pegasus_job_class` of Pegasus's planner (edu.isi.pegasus.planner.classes.Job)
_CLASSES = {
    "1": JobKind.COMPUTE,
    "2": JobKind.STAGE_IN,
    "3": JobKind.STAGE_OUT,
    "4": JobKind.REGISTER,
    "5": JobKind.STAGE_INTER,
    "6": JobKind.CREATE_DIR,
    "8": JobKind.CLEANUP,
    "10": JobKind.SUBWORKFLOW,
    "11": JobKind.SUBWORKFLOW,
}
_PREFIXES = {
    "stage_inter_": JobKind.STAGE_INTER,
    "stage_in_": JobKind.STAGE_IN,
    "stage_out_": JobKind.STAGE_OUT,
    "create_dir_": JobKind.CREATE_DIR,
    "clean_up_": JobKind.CLEANUP,
    "cleanup_": JobKind.CLEANUP,
    "register_": JobKind.REGISTER,
}

_JOB = re.compile(
    r"\s*(?:JOB|NODE|FINAL|SERVICE|PROVISIONER)\s+(\S+)\s+(\S+)(?:\s+DIR\s+(\S+))?", re.IGNORECASE
)
_SUBDAG = re.compile(r"\s*SUBDAG\s+EXTERNAL\s+(\S+)\s+(\S+)(?:\s+DIR\s+(\S+))?", re.IGNORECASE)
_VARS = re.compile(r"\s*VARS\s+(\S+)\s+(.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of the executable workflow.

    ``task`` is its id in the abstract workflow, empty for jobs that the planner added. ``output``
    and ``error`` are where its standard output and standard error go.
    """

    name: str
    kind: JobKind
    site: str = ""
    transformation: str = ""
    task: str = ""
    output: Path | None = None
    error: Path | None = None


class SubmitDir:
    """A planned workflow. Submit files are read when a job is first asked for.

    ``dag`` names a DAG without a directory of its own, whose DAGMan runs in ``path``: a sub-DAG of
    the workflow there. It is known as ``workflow`` then, and what ``braindump.yml`` says is not
    about it. A workflow that has no UUID is known by its DAG's path.

    Raises InputError where the directory is none, or holds no DAG, or several of which none has all
    others inside it, without saying which.
    """

    def __init__(self, path: str | Path, dag: Path | None = None, workflow: str = "") -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(f"{self.path}: found no such directory, expected a submit directory")
        self.braindump = _braindump(self.path / "braindump.yml") if dag is None else {}
        self.dag = dag or self.path / (self.braindump.get("dag") or only_dag(self.path))
        self.workflow = workflow or self.braindump.get("wf_uuid") or place(self.dag)
        self.name = self.braindump.get("dax_label") or self.dag.stem
        log = self.braindump.get("condor_log", "")
        self.workflow_log = self.path / log if log else None
        self.forget()

    def forget(self) -> None:
        """Lets go of what was read of jobs; it is read again when it is asked for."""
        self._files: dict[str, Path] | None = None
        self._folders: dict[str, Path] = {}  # where the DAGMan of a sub-DAG runs
        self._variables: dict[str, dict[str, str]] = {}
        self._jobs: dict[str, PlannedJob] = {}

    @property
    def dagman_out(self) -> Path:
        """What DAGMan says about itself; the tables of :mod:`monitors.logs.dagman_log`."""
        return self.dag.with_name(self.dag.name + ".dagman.out")

    @property
    def nodes_log(self) -> Path:
        """The events of the workflow's jobs."""
        return self.dag.with_name(self.dag.name + ".nodes.log")

    @property
    def dagman_log(self) -> Path:
        """The events of DAGMan's own job."""
        return self.dag.with_name(self.dag.name + ".dagman.log")

    def job(self, name: str) -> PlannedJob:
        """What is known about a job. One that is not in the DAG, or whose files cannot be read, has
        only its name: what happens to it is followed all the same.
        """
        if name not in self._jobs:
            try:
                self._jobs[name] = self._read_job(name)
            except InputError:
                return PlannedJob(name, _kind(name, "", ""))
        return self._jobs[name]

    def submit_file(self, name: str) -> Path | None:
        """A job's submit file, or a sub-DAG's own file; None where it is not in the DAG. Raises
        InputError where that cannot be read."""
        return self._job_files().get(name)

    def folder(self, name: str) -> Path:
        """Where the DAGMan of a sub-DAG runs: in its ``DIR``, else where this one does."""
        self._job_files()
        return self._folders.get(name, self.path)

    def values(self, name: str) -> dict[str, str]:
        """What a job's submit file assigns, by lower-case name, ``+x`` as ``my.x``, with macros as
        they come out. Raises InputError where it cannot be read."""
        file = self.submit_file(name)
        if file is None or name in self._folders:
            return {}
        values = submit_values(file) | {"job": name} | self._variables.get(name, {})
        return {key: expanded(value, values).strip('"') for key, value in values.items()}

    def job_names(self) -> list[str]:
        """All jobs, in the order of the DAG file. Raises InputError where it cannot be read."""
        return list(self._job_files())

    def _job_files(self) -> dict[str, Path]:
        if self._files is None:
            files: dict[str, Path] = {}
            for line in text_of(self.dag).splitlines():
                if found := _JOB.match(line):
                    files[found[1]] = self.path / (found[3] or "") / found[2]
                elif found := _SUBDAG.match(line):
                    folder = self.path / (found[3] or "")
                    self._folders[found[1]] = folder
                    files[found[1]] = folder / found[2]
                elif found := _VARS.match(line):
                    known = self._variables.setdefault(found[1], {})
                    known.update(variables(found[2]))
            self._files = files
        return self._files

    def _read_job(self, name: str) -> PlannedJob:
        file = self.submit_file(name)
        if file is None or name in self._folders:
            return PlannedJob(name, _kind(name, "", "") if file is None else JobKind.SUBWORKFLOW)
        known = self.values(name)
        task = known.get("my.pegasus_wf_dax_job_id", "")
        transformation = known.get("my.pegasus_wf_xformation", "")
        folder = self.path / known.get("initialdir", "")
        files = {
            name: folder / path if path and "$(" not in path else file.with_suffix(suffix)
            for name, suffix in (("output", ".out"), ("error", ".err"))
            for path in (known.get(name, ""),)
        }
        return PlannedJob(
            name=name,
            kind=_kind(name, known.get("my.pegasus_job_class", ""), transformation),
            site=known.get("my.pegasus_site", ""),
            transformation=transformation,
            task="" if task == "null" else task,
            output=files["output"],
            error=files["error"],
        )


def submit_dir_of(path: str | Path) -> SubmitDir:
    """The workflow in a submit directory, or that of a DAG's own file, for a directory with
    several. Raises InputError as :class:`SubmitDir`."""
    path = Path(path)
    if not is_file(path):
        return SubmitDir(path)
    if path.suffix != DAG:
        raise InputError(f"{path}: found a file, expected a submit directory or a {DAG} file")
    return running(path.parent, path.name)


def running(folder: Path, name: str) -> SubmitDir:
    """The workflow whose DAGMan runs the DAG called ``name`` in ``folder``: the planned one there,
    or another. Raises InputError where there is no such DAG."""
    dag = folder / name
    try:
        planned = SubmitDir(dag.parent)
    except InputError:
        planned = None
    if planned is not None and planned.dag.name == dag.name:
        return planned
    if not dag.exists():
        raise InputError(f"{dag}: found no such file, expected a DAG")
    return SubmitDir(folder, dag, place(dag))


def _kind(name: str, job_class: str, transformation: str) -> JobKind:
    if job_class:
        return _CLASSES.get(job_class, JobKind.OTHER)
    if transformation and not transformation.startswith("pegasus::"):
        return JobKind.COMPUTE
    for prefix, kind in _PREFIXES.items():
        if name.startswith(prefix):
            return kind
    return JobKind.OTHER


def _braindump(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        # Text as it is written: a date that is none is no error here, and no value is built.
        data = yaml.load(text_of(path), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise InputError(
            f"{path}: found no YAML, expected Pegasus's braindump: {problem}"
        ) from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: found no keys, expected Pegasus's braindump")
    known = {key: value for key, value in data.items() if isinstance(value, str)}
    return {str(key): value for key, value in known.items() if value not in ("", "~", "null")}
