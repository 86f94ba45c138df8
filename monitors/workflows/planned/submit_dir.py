"""What a workflow's submit directory says about the workflow, its jobs and the workflows inside it.

The directory has Pegasus's shape whoever planned it: ``braindump.yml``, ``<name>.dag``, and a
``.sub`` file per job that names the job's site and transformation. A directory with nothing but a
DAG is followed as well; its jobs then have no site.

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
import stat
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from monitors.workflows.planned.job_files import PlannedTask, braindump, clustered_tasks
from monitors.workflows.planned.owned import as_owner, read_text
from network_provisioner.base.errors import InputError

DAG = ".dag"

_SHOWN = 5  # DAGs in a message
_PART = re.compile(
    r"\s*(?:SUBDAG\s+EXTERNAL\s+\S+\s+(\S+)|(?:SPLICE\s+\S+|INCLUDE)\s+(\S+))", re.IGNORECASE
)

# A word of HTCondor's arguments: what stands in ' ' belongs to it, and '' in there is one '.
_QUOTED = r"'((?:[^']|'')*)'"
_ARGUMENT = re.compile(rf"(?:^|\s)-dag\s+((?:[^\s']|{_QUOTED})+)", re.IGNORECASE)


def dag_of(arguments: str) -> str | None:
    """The DAG that a DAGMan with these arguments runs, the first of several; None for others."""
    found = _ARGUMENT.search(arguments)
    if found is None:
        return None
    return re.sub(_QUOTED, lambda quoted: quoted[1].replace("''", "'"), found[1])


def only_dag(folder: Path) -> str:
    """The name of the one DAG in ``folder``, apart from those that others name as parts of
    themselves. Raises InputError where there is none, or several."""
    dags = sorted(path for path in folder.glob(f"*{DAG}") if is_file(path))
    inside = {part for dag in dags for part in _parts(dag)} if len(dags) > 1 else set()
    whole = [dag for dag in dags if dag.name not in inside]
    if len(whole) == 1:
        return whole[0].name
    instead = f", or one of them: {_some(whole or dags)}" if dags else ""
    raise InputError(
        f"{folder}: found {len(dags)} {DAG} files and no braindump.yml that names one,"
        f" expected a submit directory{instead}"
    )


def place(dag: Path) -> str:
    """Where a DAG is, by whatever links it was reached."""
    return str(dag.parent.resolve() / dag.name)


def is_file(path: Path) -> bool:
    """Whether it is a file, as far as one may look. Raises nothing."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # one may not look; a name that is too long, or none
        return False


def text_of(path: Path) -> str:
    """A file as text. Raises InputError where it cannot be read."""
    try:
        return read_text(path, "replace")
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte in it
        problem = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read: {problem}") from error


def _parts(dag: Path) -> set[str]:
    """The DAGs of the same directory that a DAG is made of; itself is none of them."""
    named: list[str] = []
    with suppress(InputError):
        lines = text_of(dag).splitlines()
        named = [found[1] or found[2] for line in lines if (found := _PART.match(line))]
    parts = [dag.parent / name for name in named]
    return {part.name for part in parts if part.parent == dag.parent and part != dag}


def _some(dags: Sequence[Path]) -> str:
    return ", ".join(map(str, dags[:_SHOWN])) + (", …" if len(dags) > _SHOWN else "")


_VARIABLE = re.compile(r'(\+?[\w.]+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ASSIGNMENT = re.compile(r"\s*(\+?[\w.]+)\s*=\s*(.*?)\s*\Z")
_LONGEST = 4096  # no path is longer; macros of macros would be, without end
_MACRO = re.compile(r"\$\(([\w.]+)\)")


def submit_values(path: Path) -> dict[str, str]:
    """The assignments of a submit file by lower-case name, ``+x`` and ``MY.x`` as ``my.x``.
    Raises InputError where it cannot be read."""
    if not _exists(path):
        return {}
    values: dict[str, str] = {}
    for line in text_of(path).splitlines():
        if found := _ASSIGNMENT.match(line):
            values[_key(found[1])] = found[2]
    return values


def variables(text: str) -> dict[str, str]:
    """The assignments of a ``VARS`` line, by lower-case name."""
    found = _VARIABLE.findall(text)
    return {_key(name): value.replace('\\"', '"').replace("\\\\", "\\") for name, value in found}


def expanded(value: str, values: dict[str, str]) -> str:
    """A value with its macros as they come out of ``values``."""
    for _ in range(5):  # macros may hold macros; one that holds itself must not hold us
        if "$(" not in value or len(value) > _LONGEST:
            break
        value = _MACRO.sub(lambda found: values.get(found[1].lower(), found[0]), value)
    return value


def _key(name: str) -> str:
    lower = name.lower()
    return f"my.{lower[1:]}" if lower.startswith("+") else lower


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


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

_PLANNERS = "pegasus::"  # transformations of the planner's own

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

    ``task`` is its id in the abstract workflow, empty for jobs that the planner added and for
    clustered jobs; of those, ``tasks`` are what is inside. ``output`` and ``error`` are where its
    standard output and standard error go.
    """

    name: str
    kind: JobKind
    site: str = ""
    transformation: str = ""
    task: str = ""
    output: Path | None = None
    error: Path | None = None
    tasks: tuple[PlannedTask, ...] = ()

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
        found = self.path.stat()
        if found.st_mode & stat.S_ISVTX and found.st_mode & stat.S_IWOTH:
            raise InputError(f"{self.path}: everybody has files there, expected a submit directory")
        self.owner = found.st_uid
        with self.as_owner():
            self.braindump = _braindump(self.path) if dag is None else {}
            self.dag = dag or self.path / (self.braindump.get("dag") or only_dag(self.path))
        self.workflow = workflow or self.braindump.get("wf_uuid") or place(self.dag)
        self.name = self.braindump.get("dax_label") or self.dag.stem
        log = self.braindump.get("condor_log", "")
        self.workflow_log = self.path / log if log else None
        self.forget()

    def as_owner(self) -> AbstractContextManager[None]:
        """Within it this thread opens files of the directory's owner alone."""
        return as_owner(self.owner)

    def forget(self) -> None:
        """Lets go of what was read of jobs; it is read again when it is asked for."""
        self._files: dict[str, Path] | None = None
        self._folders: dict[str, Path] = {}  # where the DAGMan of a sub-DAG runs
        self._variables: dict[str, dict[str, str]] = {}
        self._jobs: dict[str, PlannedJob] = {}

    @property
    def dagman_out(self) -> Path:
        """What DAGMan says about itself; the tables of :mod:`monitors.workflows.logs.dagman`."""
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
        return {key: value.strip('"') for key, value in self.words(name).items()}

    def words(self, name: str) -> dict[str, str]:
        """The same as it is written, with quotes: ClassAd expressions among them."""
        file = self.submit_file(name)
        if file is None or name in self._folders:
            return {}
        with self.as_owner():
            values = submit_values(file)
        values |= {"job": name} | self._variables.get(name, {})
        return {key: expanded(value, values) for key, value in values.items()}

    def job_names(self) -> list[str]:
        """All jobs, in the order of the DAG file. Raises InputError where it cannot be read."""
        return list(self._job_files())

    def _job_files(self) -> dict[str, Path]:
        if self._files is None:
            files: dict[str, Path] = {}
            with self.as_owner():
                text = text_of(self.dag)
            for line in text.splitlines():
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
        job = PlannedJob(
            name=name,
            kind=_kind(name, known.get("my.pegasus_job_class", ""), transformation),
            site=known.get("my.pegasus_site", ""),
            transformation=transformation,
            task="" if task == "null" else task,
            output=files["output"],
            error=files["error"],
        )
        if not job.is_clustered:
            return job
        with self.as_owner():
            return replace(job, tasks=clustered_tasks(file))


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
    if transformation and not transformation.startswith(_PLANNERS):
        return JobKind.COMPUTE
    for prefix, kind in _PREFIXES.items():
        if name.startswith(prefix):
            return kind
    return JobKind.OTHER


_KEYS = ("dag", "wf_uuid", "root_wf_uuid", "dax_label", "condor_log")
_OPENING = frozenset("\"'[{")  # of what is no whole text


def _braindump(folder: Path) -> dict[str, str]:
    if not (folder / "braindump.yml").exists():
        return {}
    known = braindump(folder)
    torn = [key for key in _KEYS if known.get(key, "")[:1] in _OPENING]
    if not known or torn:
        what = f"no text as {torn[0]}" if torn else "no keys"
        raise InputError(f"{folder}/braindump.yml: found {what}, expected Pegasus's braindump")
    return {key: value for key, value in known.items() if value not in ("", "~", "null")}


_NUMBERED = re.compile(r"(.+)\.(\d{3})")
_SHARED = ("user", "submit_hostname")  # what a plain sub-DAG has from its parent


def sub_workflows(parent: SubmitDir, job: str) -> list[SubmitDir]:
    """What a sub-workflow's job runs, with the plans that it ran before, the newest last; none
    where the job is no such job, or nothing is planned yet.

    Raises InputError for a submit directory that cannot be read.
    """
    if parent.job(job).kind is not JobKind.SUBWORKFLOW:
        return []
    file = parent.submit_file(job)
    if file is None:
        return []
    values = parent.values(job)
    if values:
        folder = _real(parent.path / values.get("initialdir", ""))
        name = dag_of(values.get("arguments", ""))
        dag = folder / name if name else None
    else:
        folder, dag = parent.folder(job), file
    if dag is None or not dag.is_file():
        return []
    own = _planned(dag)
    if own is not None and own.workflow != parent.workflow:
        _check_owner(own, parent)
        return [*(one for one in _plans_before(own) if one.owner == parent.owner), own]
    plain = SubmitDir(folder, dag, derived(parent.workflow, job))
    _check_owner(plain, parent)
    plain.braindump.update(
        {name: parent.braindump[name] for name in _SHARED if name in parent.braindump}
    )
    return [plain]


def _check_owner(part: SubmitDir, whole: SubmitDir) -> None:
    if part.owner != whole.owner:
        raise InputError(f"{part.path}: found another user's, expected a part of {whole.path}")


def _plans_before(newest: SubmitDir) -> list[SubmitDir]:
    """``mini_sub.000`` and so on, of ``mini_sub.002``."""
    found = _NUMBERED.fullmatch(newest.path.name)
    if found is None:
        return []
    earlier: list[SubmitDir] = []
    for number in range(int(found[2])):
        folder = newest.path.with_name(f"{found[1]}.{number:03d}")
        if (folder / "braindump.yml").is_file():
            with suppress(InputError):  # nothing but its own history is lost
                earlier.append(SubmitDir(folder))
    return earlier


def derived(parent: str, job: str) -> str:
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
        for above in _real(path).parents:
            if (above / "braindump.yml").is_file() and SubmitDir(above).workflow == root:
                return above
    except InputError:
        pass
    return path


def _planned(dag: Path) -> SubmitDir | None:
    """The submit directory that was planned for a DAG, where it has one of its own."""
    folder = _real(dag.parent)
    if not (folder / "braindump.yml").is_file():
        return None
    found = SubmitDir(folder)
    return found if found.dag.name == dag.name else None


def _real(path: Path) -> Path:
    """Pegasus's own path is a symbolic link to its newest plan."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return path
