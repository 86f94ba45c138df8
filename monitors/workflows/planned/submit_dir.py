"""What a workflow's submit directory says about the workflow and its jobs.

The directory has Pegasus's shape whoever planned it: ``braindump.yml``, ``<name>.dag``, and a
``.sub`` file per job that names the job's site and transformation. A directory with nothing but a
DAG is followed as well; its jobs then have no site.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from monitors.workflows.planned.dag_file import DagNode, key_of, read_nodes, text_of
from monitors.workflows.planned.foreign_files import as_owner, exists, is_file, open_plain_file
from monitors.workflows.planned.job_files import PlannedTask, braindump, clustered_tasks
from network_provisioner.base.errors import InputError

DAG = ".dag"
_OUT, _SUBMIT = ".dagman.out", ".condor.sub"  # what DAGMan and its submit file append to its name

_SHOWN = 5  # DAGs in a message
_PART = re.compile(
    r"\s*(?:SUBDAG\s+EXTERNAL\s+\S+\s+(\S+)|(?:SPLICE\s+\S+|INCLUDE)\s+(\S+))", re.IGNORECASE
)

# A word of HTCondor's arguments: what stands in ' ' belongs to it, and '' in there is one '.
_QUOTED = r"'((?:[^']|'')*)'"
_USE_DAG_DIR = re.compile(r"(?:^|\s)-usedagdir(?:\s|$)", re.IGNORECASE)
_ARGUMENT = re.compile(rf"(?:^|\s)-dag\s+((?:[^\s']|{_QUOTED})+)", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"\s*(\+?[\w.]+)\s*=\s*(.*?)\s*\Z")
_LONGEST = 4096  # no path is longer; macros of macros would be, without end
_MACRO = re.compile(r"\$\(([\w.]+)(?::([^()]*))?\)")  # perhaps with a default
_UNKNOWN = re.compile(r"\$\$?\([^()]*\)")
_CONTINUED = re.compile(r"\\\r?\n[ \t]*")
_PLANNERS = "pegasus::"  # transformations of the planner's own
_TRUE = ("true", "t", "yes", "y", "1")  # of HTCondor
# Where a submit file names what HTCondor is to move.
_MOVED_FILES = (
    "transfer_input_files", "transfer_output_remaps", "output_destination", "public_input_files",
)  # fmt: skip
_NODES_LOG = re.compile(rb"Default node log file is: <([^>\n]+)>")
_DAGMAN_OUT = re.compile(r"_CONDOR_DAGMAN_LOG=([^\s;\"']+)")
_HEAD_BYTES = 1 << 16
_KEYS = ("dag", "wf_uuid", "root_wf_uuid", "dax_label", "condor_log")
_OPENING = frozenset("\"'[{")  # of what is no whole text


def dag_of(arguments: str) -> str | None:
    """The DAG that a DAGMan with these arguments runs, the first of several; None for others."""
    return next(iter(dags_of(arguments)), None)


def dags_of(arguments: str) -> list[str]:
    """All DAGs that a DAGMan with these arguments runs, as one."""
    return [
        re.sub(_QUOTED, lambda quoted: quoted[1].replace("''", "'"), match[1])
        for match in _ARGUMENT.finditer(arguments)
    ]


def only_dag(folder: Path) -> str:
    """The name of the one DAG in ``folder``, or that DAGMan ran there, apart from those that others
    name as parts of themselves. Raises InputError where there is none, or several."""
    # A DAG may be called anything, and nothing but what DAGMan said of it may have been kept.
    names = {path.name for path in folder.glob(f"*{DAG}")}
    names |= {path.name.removesuffix(_OUT) for path in folder.glob(f"*{_OUT}")}
    dags = [folder / name for name in sorted(names)]
    dags = [dag for dag in dags if is_file(dag)] or dags
    inside, looking = set[str](), dags[:] if len(dags) > 1 else []
    while looking:
        new = _parts(looking.pop()) - inside
        inside |= new
        looking += [folder / part for part in new]
    whole = [dag for dag in dags if dag.name not in inside]
    if len(whole) == 1:
        return whole[0].name
    shown = ", ".join(map(str, (whole or dags)[:_SHOWN]))
    more = ", …" if len(whole or dags) > _SHOWN else ""
    instead = f", or one of them: {shown}{more}" if dags else ""
    raise InputError(
        f"{folder}: found {len(dags)} {DAG} files and no braindump.yml that names one,"
        f" expected a submit directory{instead}"
    )


def place(dag: Path) -> str:
    """Where a DAG is, by whatever links it was reached."""
    return str(dag.parent.resolve() / dag.name)


def _parts(dag: Path) -> set[str]:
    """The DAGs of the same directory that a DAG is made of; itself is none of them."""
    named: list[str] = []
    with suppress(InputError):
        lines = text_of(dag).splitlines()
        named = [match[1] or match[2] for line in lines if (match := _PART.match(line))]
    named += _arguments(dag)[0][1:]
    parts = [dag.parent / name.strip("\"'") for name in named]
    return {part.name for part in parts if part.parent == dag.parent and part != dag}


def _arguments(dag: Path) -> tuple[list[str], bool]:
    """The DAGs that DAGMan was told to run as one with this as the first of them, itself included,
    and whether each in a directory of its own; none where its submit file does not say."""
    arguments = ""
    with suppress(InputError):
        submit = submit_values(dag.with_name(f"{dag.name}{_SUBMIT}"))
        arguments = submit.get("arguments", "").strip('"')
    named = dags_of(arguments)
    if not named or Path(named[0]).name != dag.name:
        return [], False
    return named, _USE_DAG_DIR.search(arguments) is not None


def submit_values(path: Path) -> dict[str, str]:
    """The assignments of a submit file by lower-case name, ``+x`` and ``MY.x`` as ``my.x``.
    Raises InputError where it cannot be read."""
    return values_in(text_of(path)) if exists(path) else {}


def values_in(text: str) -> dict[str, str]:
    """The assignments of a submit description."""
    assignments = filter(None, map(_ASSIGNMENT.match, _CONTINUED.sub("", text).split("\n")))
    return {key_of(assignment[1]): assignment[2] for assignment in assignments}


def expanded(value: str, values: dict[str, str]) -> str:
    """A value with its macros as they come out of ``values``."""
    for _ in range(5):  # macros may hold macros; one that holds itself must not hold us
        if "$(" not in value or len(value) > _LONGEST:
            break
        value = _MACRO.sub(
            lambda match: values.get(match[1].lower(), match[0] if match[2] is None else match[2]),
            value,
        )
    return value


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
    SERVICE = "service"
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


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of the executable workflow.

    ``task`` is its id in the abstract workflow, empty for jobs that the planner added and for
    clustered jobs; of those, ``tasks`` are what is inside. ``output_path`` and ``error_path`` are
    where its standard output and standard error go. ``on_hold``: it is submitted on hold;
    ``moves_urls``: transfer plug-ins of HTCondor may move files of it.
    """

    name: str
    kind: JobKind
    site: str = ""
    transformation: str = ""
    task: str = ""
    output_path: str = ""
    error_path: str = ""
    tasks: tuple[PlannedTask, ...] = ()
    on_hold: bool = False
    moves_urls: bool = False

    @property
    def output(self) -> Path | None:
        """Its standard output, None where that is not known."""
        return Path(self.output_path) if self.output_path else None

    @property
    def error(self) -> Path | None:
        """Its standard error, None where that is not known."""
        return Path(self.error_path) if self.error_path else None

    @property
    def ended(self) -> PlannedJob:
        """The same without what is of no interest once it has ended: there may be 100,000."""
        return replace(self, output_path="", error_path="", tasks=())

    @property
    def is_clustered(self) -> bool:
        """Whether the planner put tasks of the abstract workflow together into it."""
        planners_own = self.transformation.startswith(_PLANNERS)
        return self.kind is JobKind.COMPUTE and planners_own and not self.task


class SubmitDir:
    """A planned workflow. Submit files are read when a job is first asked for.

    ``dag`` names a DAG without a directory of its own, whose DAGMan runs in ``path``: a sub-DAG of
    the workflow there. It is known as ``workflow`` then, and what ``braindump.yml`` says is not
    about it. A workflow that has no UUID is known by its DAG's path.

    All files are of the directory's ``owner``, a user id: those of others are not read.

    Raises InputError where the directory is none, or holds no DAG, or several of which none has all
    others inside it, without saying which.
    """

    def __init__(self, path: str | Path, dag: Path | None = None, workflow: str = "") -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(f"{self.path}: found no such directory, expected a submit directory")
        status = self.path.stat()
        if status.st_mode & stat.S_ISVTX and status.st_mode & stat.S_IWOTH:
            raise InputError(f"{self.path}: everybody has files there, expected a submit directory")
        self.owner = status.st_uid
        with self.as_owner():
            self.braindump = _braindump(self.path) if dag is None else {}
            self.dag = dag or self.path / self._dag_name()
        self.workflow = workflow or self.braindump.get("wf_uuid") or place(self.dag)
        self.name = self.braindump.get("dax_label") or self.dag.stem
        log = self.braindump.get("condor_log", "")
        planned_path = self.braindump.get("submit_dir", "")
        self._planned_path = Path(os.path.normpath(planned_path)) if planned_path else None
        self.workflow_log = self.here(self.path / log) if log else None
        self.forget()

    def _dag_name(self) -> str:
        named = self.braindump.get("dag", "")
        if named and not any((self.path / f"{named}{end}").exists() for end in ("", ".dagman.out")):
            with suppress(InputError):  # it may have been renamed
                return only_dag(self.path)
        return named or only_dag(self.path)

    def as_owner(self) -> AbstractContextManager[None]:
        """Within it this thread opens files of the directory's owner alone."""
        return as_owner(self.owner)

    def forget_job(self, name: str) -> None:
        """Lets go of what was read of one job; it is read again when it is asked for."""
        self._jobs.pop(name, None)

    def forget(self) -> None:
        """Lets go of what was read of all jobs; it is read again when it is asked for."""
        self._nodes: dict[str, DagNode] | None = None
        self._jobs: dict[str, PlannedJob] = {}

    @property
    def _planned(self) -> datetime | None:
        """When Pegasus planned it, from its ``20261121T212105+0000``; None where nobody says."""
        for form in ("%Y%m%dT%H%M%S%z", "%Y%m%dT%H%M%S"):
            with suppress(ValueError):
                return datetime.strptime(self.braindump.get("timestamp", ""), form)
        return None

    @property
    def planned_at(self) -> float:
        """When Pegasus planned it (Unix seconds); 0 where nobody says."""
        planned = self._planned
        return planned.replace(tzinfo=planned.tzinfo or UTC).timestamp() if planned else 0.0

    @property
    def offset_s(self) -> int | None:
        """How many seconds east of Greenwich the clock of its submit host was when it was planned,
        where that is another machine; None where it is this one, or nobody says."""
        host, planned = self.braindump.get("submit_hostname", ""), self._planned
        if not host or host.split(".")[0] == socket.gethostname().split(".")[0]:
            return None
        offset = planned.utcoffset() if planned is not None else None
        return None if offset is None else int(offset.total_seconds())

    @property
    def _folder(self) -> Path:
        """Where its DAGMan runs."""
        return self._dags[0]

    @cached_property
    def _dags(self) -> tuple[Path, list[tuple[Path, Path]]]:
        """Where its DAGMan runs; and the DAGs that it runs as one, each with the folder in which
        its jobs are submitted."""
        named: list[str] = []
        apart = False
        if not self.braindump:
            with self.as_owner():
                named, apart = _arguments(self.dag)
        folder = self.path
        if named and self.dag.parent == folder:
            folder = _without(folder, Path(named[0]).parent)
        dags = [self.dag, *(folder / name for name in named[1:])]
        return folder, [(dag, dag.parent if apart else folder) for dag in dags]

    @property
    def dagman_out(self) -> Path:
        """What DAGMan says about itself: beside the DAG, or where its submit file sends it
        (``condor_submit_dag -outfile_dir``)."""
        usual = self.dag.with_name(self.dag.name + _OUT)
        submit = self.dag.with_name(self.dag.name + _SUBMIT)
        if not is_file(usual) and is_file(submit):
            with suppress(InputError):
                named = _DAGMAN_OUT.search(text_of(submit))
                if named and is_file(path := self.here(self._folder / named[1])):
                    return path
        return usual

    @property
    def nodes_log(self) -> Path:
        """The events of the workflow's jobs: beside the DAG, or where DAGMan says that it keeps
        them."""
        usual = self.dag.with_name(self.dag.name + ".nodes.log")
        if is_file(usual) and usual.stat().st_size:
            return usual
        with suppress(OSError, ValueError), self.as_owner():
            with os.fdopen(open_plain_file(self.dagman_out), "rb") as file:
                named = _NODES_LOG.findall(file.read(_HEAD_BYTES))
            if named:
                return self.here(self._folder / os.fsdecode(named[-1]))
        return usual

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

    @property
    def nodes(self) -> dict[str, DagNode]:
        """What the DAG says of its jobs, in the order of the file. Raises InputError where it
        cannot be read."""
        if self._nodes is None:
            dags = self._dags[1]
            with self.as_owner():
                nodes: dict[str, DagNode] = {}
                for number, (dag, folder) in enumerate(dags):
                    # DAGMan numbers the nodes of several DAGs.
                    nodes |= read_nodes(dag, folder, f"{number}." if dags[1:] else "")
                self._nodes = nodes
            folders: dict[Path, Path] = {}  # each made once for all nodes in it
            for node in self._nodes.values():
                if node.name.startswith("/"):
                    node.name = str(self.here(node.file))
                if node.folder not in folders:
                    folders[node.folder] = self.here(node.folder)
                node.folder = folders[node.folder]
        return self._nodes

    def here(self, path: Path) -> Path:
        """A file of the workflow where its directory is now: that may have been moved, or copied
        to another machine, since the files were written."""
        if self._planned_path is not None and path.is_absolute():
            with suppress(ValueError):
                return self.path / Path(os.path.normpath(path)).relative_to(self._planned_path)
        return path

    def named_file(self, name: str, path: str) -> Path:
        """What a job's submit file names, relative to where it is submitted. What is named by a
        path that is not there is looked for beside the submit file."""
        node = self.nodes[name]
        file = self.here(node.folder / path)
        if path.startswith("/") and not exists(file.parent):
            return node.file.parent / file.name
        return file

    def values(self, name: str) -> dict[str, str]:
        """What a job's submit file assigns, by lower-case name, ``+x`` as ``my.x``, with macros as
        they come out. Raises InputError where it cannot be read."""
        return {key: value.strip('"') for key, value in self.expressions(name).items()}

    def expressions(self, name: str) -> dict[str, str]:
        """The same as it is written, with quotes: ClassAd expressions among them."""
        node = self.nodes.get(name)
        if node is None or node.is_subdag:
            return {}
        with self.as_owner():
            text = node.description
            values = submit_values(node.file) if text is None else values_in(text)
        values = {"job": name, **node.variables, **values, **node.overriding}
        return {key: expanded(value, values) for key, value in values.items()}

    def job_logs(self) -> list[str]:
        """The event logs that the jobs' submit files name, each once, with ``*`` for what is not
        known before a job is submitted; none where they cannot be read, and of a workflow with a
        log of its own, which is what they all name."""
        logs: dict[str, None] = {}
        if self.workflow_log is not None:
            return []
        with suppress(InputError):
            for name in self.nodes:
                known = self.values(name)
                if log := _UNKNOWN.sub("*", known.get("log", "")):
                    folder = known.get("initialdir", "")
                    logs[str(self.named_file(name, os.path.join(folder, log)))] = None  # noqa: PTH118
        return list(logs)

    def _read_job(self, name: str) -> PlannedJob:
        node = self.nodes.get(name)
        if node is None or node.is_subdag:
            return PlannedJob(name, JobKind.SUBWORKFLOW if node else _kind(name, "", ""))
        known = self.values(name)
        task = known.get("my.pegasus_wf_dax_job_id", "")
        transformation = known.get("my.pegasus_wf_xformation", "")
        folder = known.get("initialdir", "")
        usual = node.file if node.description is None else node.folder / name
        files = {
            key: self.named_file(name, os.path.join(folder, path))  # noqa: PTH118  # it may be absolute
            if path and "$(" not in path
            else usual.with_suffix(suffix)
            for key, suffix in (("output", ".out"), ("error", ".err"))
            for path in (known.get(key, ""),)
        }
        job = PlannedJob(
            name=name,
            kind=JobKind.SERVICE
            if node.is_service
            else _kind(name, known.get("my.pegasus_job_class", ""), transformation),
            # Many jobs share these: one string for all.
            site=sys.intern(known.get("my.pegasus_site", "")),
            transformation=sys.intern(transformation),
            task="" if task == "null" else task,
            output_path=str(files["output"]),
            error_path=str(files["error"]),
            on_hold=known.get("hold", "").lower() in _TRUE,
            moves_urls=any("://" in known.get(key, "") for key in _MOVED_FILES),
        )
        if not job.is_clustered:
            return job
        with self.as_owner():
            return replace(job, tasks=clustered_tasks(node.file))


def submit_dir_of(path: str | Path) -> SubmitDir:
    """The workflow in a submit directory, or that of a DAG's own file, for a directory with
    several. Raises InputError as :class:`SubmitDir`."""
    path = Path(path)
    if not is_file(path):
        return SubmitDir(path)
    if path.suffix != DAG and not _is_dag(path):
        raise InputError(f"{path}: found a file, expected a submit directory or a {DAG} file")
    return running(path.parent, path.name)


def _is_dag(path: Path) -> bool:
    """Whether a file is a DAG although its name does not say so."""
    if any(is_file(path.with_name(f"{path.name}{end}")) for end in (_OUT, _SUBMIT)):
        return True
    with suppress(InputError):
        return bool(read_nodes(path, path.parent))
    return False


def _without(folder: Path, end: Path) -> Path:
    """The folder in which a relative path leads to this one; this one where none does."""
    above = folder.absolute()
    for part in reversed(end.parts):
        if above.name != part or end.is_absolute():
            return folder
        above = above.parent
    return above if end.parts else folder


def running(folder: Path, name: str) -> SubmitDir:
    """The workflow whose DAGMan runs the DAG called ``name`` in ``folder``: the planned one there,
    or another. Raises InputError where there is no such DAG."""
    dag = folder / name
    try:
        planned = SubmitDir(dag.parent)
    except InputError:
        planned = None
    if planned is not None and planned.dag.name == dag.name:
        if not planned.braindump and dag.parent != folder:
            with suppress(InputError):  # it may be everybody's
                return SubmitDir(folder, dag, place(dag))
        return planned
    if not dag.exists():
        raise InputError(f"{dag}: found no such file, expected a DAG")
    return SubmitDir(folder, dag, place(dag))


def _kind(name: str, job_class: str, transformation: str) -> JobKind:
    if job_class:
        return _CLASSES.get(job_class, JobKind.OTHER)
    if transformation and not transformation.startswith(_PLANNERS):
        return JobKind.COMPUTE
    for prefix, kind in _PREFIXES.items():
        if name.startswith(prefix):
            return kind
    return JobKind.OTHER


def is_planned(folder: Path) -> bool:
    """Whether Pegasus planned a workflow there: before 5.0 it wrote ``braindump.txt``."""
    return any(is_file(folder / f"braindump.{ending}") for ending in ("yml", "txt"))


def _braindump(folder: Path) -> dict[str, str]:
    if not (folder / "braindump.yml").exists():
        if not is_planned(folder):
            return {}
        pairs = (line.split(None, 1) for line in text_of(folder / "braindump.txt").splitlines())
        return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
    known = braindump(folder)
    torn = [key for key in _KEYS if known.get(key, "")[:1] in _OPENING]
    if not known or torn:
        problem = f"no text as {torn[0]}" if torn else "no keys"
        raise InputError(f"{folder}/braindump.yml: found {problem}, expected Pegasus's braindump")
    return {key: value for key, value in known.items() if value not in ("", "~", "null")}
